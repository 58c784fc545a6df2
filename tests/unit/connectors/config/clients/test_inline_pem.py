"""A connector made over REST gives OpenSSL no key that holds all threads of the worker while it is read."""

from __future__ import annotations

import base64
import time
from contextlib import suppress
from pathlib import Path
from textwrap import wrap
from typing import Any

import pytest

from connectors.config.clients import librdkafka
from connectors.config.clients.client_translate import JAVA, in_lines, parse_jaas
from connectors.config.clients.inline_pem import KEYS, LONGEST_PEM, LONGEST_TEXT, PEM, check_text
from connectors.config.clients.merged import client_config
from connectors.config.connector import ConnectorConfig
from connectors.config.errors import FaultyConfigError, RefusedValueError
from connectors.config.files import checked, load_worker
from connectors.config.worker import WorkerConfig
from connectors.placeholders import FILES
from tests.support.cli import worker_file
from tests.support.settings import LEAST

RSA, PSS, EC, ED25519 = "2a864886f70d010101", "2a864886f70d01010a", "2a8648ce3d0201", "2b6570"
DSA, DH, ENCRYPTION = "2a8648ce380401", "2a864886f70d010301", "2a864886f70d01050d"
MOST_S = 2.0
NAMES = [*sorted(PEM), *(java for java, name in JAVA.items() if name in PEM)]


def element(tag: int, content: bytes) -> bytes:
    length = len(content)
    return bytes([tag, length] if length < 128 else [tag, 0x82, *length.to_bytes(2, "big")]) + content


def key(kind: str) -> bytes:
    """A private key in PKCS #8, of nothing."""
    algorithm = element(0x30, element(0x06, bytes.fromhex(kind)) + element(0x05, b""))
    return element(0x30, element(0x02, b"\0") + algorithm + element(0x04, bytes(300)))


def pem(data: bytes, label: str = "PRIVATE KEY", lines: str = "") -> str:
    body = "\n".join(wrap(base64.b64encode(data).decode(), 64))
    return f"-----BEGIN {label}-----\n{lines}{body}\n-----END {label}-----\n"


ENCRYPTED = {
    "PKCS #8": pem(element(0x30, key(ENCRYPTION)), "ENCRYPTED PRIVATE KEY"),
    "OpenSSL's": pem(b"x" * 64, "RSA PRIVATE KEY", "Proc-Type: 4,ENCRYPTED\nDEK-Info: AES-256-CBC,00\n\n"),
    "among others": pem(key(RSA)) + pem(element(0x30, key(ENCRYPTION)), "ENCRYPTED PRIVATE KEY"),
}
STRANGE = {
    "DSA": pem(key(DSA)),
    "DSA, OpenSSL's": pem(b"x" * 64, "DSA PRIVATE KEY"),
    "DH": pem(key(DH)),
    "after another one": pem(key(RSA)) + pem(key(DSA)),
    "without an end": pem(key(RSA)) + pem(key(DSA)).replace("-----END", "----END"),
    "below a header": pem(key(DSA), lines=base64.b64encode(key(RSA) + bytes(-len(key(RSA)) % 3)).decode() + "\n\n"),
    "no DER": pem(b"x" * 64),
    "an open length": pem(b"\x30\x80" + key(DSA)[4:]),
}
PLAIN = {
    "PKCS #8": pem(key(RSA)),
    "PSS": pem(key(PSS)),
    "a curve": pem(key(EC)),
    "Ed25519": pem(key(ED25519)),
    "OpenSSL's": "Bag Attributes\n    friendlyName: a\n"
    + pem(b"x" * 64, "EC PARAMETERS")
    + pem(b"x", "EC PRIVATE KEY"),
    "with its certificate": pem(b"x" * 64, "RSA PRIVATE KEY") + pem(b"x" * 900, "CERTIFICATE"),
    "of Windows": pem(key(RSA)).replace("\n", "\r\n"),
}


@pytest.fixture
def worker(tmp_path: Path) -> WorkerConfig:
    (tmp_path / "allowed").mkdir()
    (tmp_path / "allowed" / "key").write_text(ENCRYPTED["PKCS #8"])
    return load_worker(worker_file(tmp_path, **{"config.providers.directory.param.allowed.paths": str(tmp_path)}))


@pytest.mark.parametrize("form", ENCRYPTED)
@pytest.mark.parametrize("name", NAMES)
def test_what_is_encrypted_reaches_no_client(
    worker: WorkerConfig, monkeypatch: pytest.MonkeyPatch, name: str, form: str
) -> None:
    """It says itself how many rounds its key takes; the answer says where an encrypted one may be."""
    made: list[Any] = []
    monkeypatch.setattr(librdkafka, "describe", lambda _: librdkafka.PropertyDescription("text"))
    monkeypatch.setattr(librdkafka, "refusal", lambda _, config: made.append(config))
    with pytest.raises(FaultyConfigError) as caught:
        checked({**LEAST, f"producer.override.{name}": ENCRYPTED[form]}, worker)
    (fault,) = caught.value.faults
    assert fault.key == f"producer.override.{name}"
    assert "it is encrypted" in fault.text
    assert FILES in fault.text
    assert made
    assert not any(JAVA.get(name, name) in config for config in made)


@pytest.mark.parametrize("form", STRANGE)
@pytest.mark.parametrize("name", sorted(KEYS))
def test_a_key_of_another_kind_reaches_none(name: str, form: str) -> None:
    """Of a key of DSA the other half is computed when it is read: 51 s for one of 20 KiB."""
    with pytest.raises(RefusedValueError, match="no key of RSA or of an elliptic curve"):
        check_text(name, STRANGE[form])


@pytest.mark.parametrize("form", PLAIN)
@pytest.mark.parametrize("name", sorted(KEYS))
def test_keys_that_are_read_at_once_are_taken(name: str, form: str) -> None:
    """With what tools write around them; of Java's form in one line too."""
    check_text(name, PLAIN[form])
    check_text(name, in_lines(PLAIN[form].replace("\n", " ")))


def test_lengths_are_bounded() -> None:
    """Lists of ciphers and curves are read in the constructor as well."""
    check_text("ssl.cipher.suites", "A" * LONGEST_TEXT)
    check_text("ssl.ca.pem", "A" * LONGEST_PEM)
    lengths = {"ssl.cipher.suites": LONGEST_TEXT, "ssl.curves.list": LONGEST_TEXT, "ssl.ca.pem": LONGEST_PEM}
    for name, length in lengths.items():
        with pytest.raises(RefusedValueError, match="Ki characters here"):
            check_text(name, "A" * (length + 1))


def test_what_the_operator_has_written_may_be_encrypted(worker: WorkerConfig, tmp_path: Path) -> None:
    """A file of a connector, and a placeholder that is the whole setting; not one within it."""
    name, limits = "producer.override.ssl.key.pem", worker.limits(over_rest=True)
    alone, within = f"${{directory:{tmp_path}/allowed:key}}", f"${{directory:{tmp_path}/allowed:key}}\n"
    for text, context in ((alone, limits), (ENCRYPTED["PKCS #8"], worker.limits(over_rest=False))):
        config = ConnectorConfig.model_validate({**LEAST, name: text}, context=context)
        assert "ENCRYPTED" in client_config("producer", worker, config, {})["ssl.key.pem"]
    mixed = ConnectorConfig.model_validate({**LEAST, name: f"{within}x"}, context=limits)
    with pytest.raises(FaultyConfigError, match="it is encrypted"):
        client_config("producer", worker, mixed, {})


@pytest.mark.parametrize(
    "text",
    [
        "PlainLoginModule required" + " " * 200_000 + "=",
        "PlainLoginModule required " + "username=a " * 50_000,
        "-----BEGIN A-----" + "A" * 1_000_000 + "-----END A-----",
    ],
    ids=["spaces", "options", "a key in one line"],
)
def test_long_settings_are_read_in_time(text: str) -> None:
    """Each is read once, whatever is in it."""
    before = time.monotonic()
    in_lines(text)
    with suppress(RefusedValueError):
        parse_jaas(text)
    assert time.monotonic() - before < MOST_S
