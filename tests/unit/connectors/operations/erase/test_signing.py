"""A receipt is signed with a key that only its account can read, and any change of it is seen."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from msgspec.structs import replace

from connectors.config.worker import WorkerConfig
from connectors.errors import ConfigError, UsageError
from connectors.operations.erase import signing
from connectors.operations.erase.receipt import (
    FOREIGN,
    TOMBSTONE,
    VALUE,
    Finding,
    Receipt,
    SignedReceipt,
    decoded,
    encoded,
    erased_keys,
    signed_bytes,
    state_of,
)


def _worker(file: Path) -> WorkerConfig:
    given: dict[str, Any] = {"bootstrap.servers": "127.0.0.1:1", "erasure.key.file": str(file)}
    return WorkerConfig(**given)


def _public(key: Ed25519PrivateKey) -> str:
    return key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()


def _receipt() -> Receipt:
    return Receipt(
        id="1",
        connector="c",
        catalog_id="C",
        storage="/s",
        snapshot_location=None,
        table="none",
        salt="00",
        keys=erased_keys(b"\0", [b"k"]),
        began_ms=1,
    )


def _fault(file: Path, data: bytes) -> str | None:
    key = signing.trusted_key(_worker(file), None)
    return signing.fault_of(decoded(data, "it"), signed_bytes(data, "it"), key)


def test_the_key_is_made_once_and_for_this_account(tmp_path: Path) -> None:
    """Mode 0600 in a folder 0700; a second use reads the same key."""
    file = tmp_path / "new" / "key.pem"
    first, second = signing.private_key(file), signing.private_key(file)
    assert _public(first) == _public(second)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert [path.name for path in file.parent.iterdir()] == ["key.pem"]


def test_a_key_that_others_read_is_refused(tmp_path: Path) -> None:
    """Who has it could sign anything."""
    file = tmp_path / "key.pem"
    signing.private_key(file)
    file.chmod(0o640)
    with pytest.raises(ConfigError, match="can be read by other accounts"):
        signing.private_key(file)


@pytest.mark.parametrize("content", [b"", b"no key", b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"])
def test_what_is_no_key_is_refused(content: bytes, tmp_path: Path) -> None:
    """The message names the file and the setting."""
    file = tmp_path / "key.pem"
    file.write_bytes(content)
    file.chmod(0o600)
    with pytest.raises(ConfigError, match="cannot be used") as raised:
        signing.private_key(file)
    assert "erasure.key.file" in raised.value.action


def test_any_change_is_seen(tmp_path: Path) -> None:
    """Another form of the same JSON counts; another content, another key, or no signature does not."""
    file = tmp_path / "key.pem"
    data = encoded(signing.sign(_receipt(), signing.private_key(file)))
    assert _fault(file, data) is None
    assert _fault(file, json.dumps(json.loads(data), sort_keys=True).encode()) is None
    assert "was changed" in (_fault(file, data.replace(b'"began_ms": 1', b'"began_ms": 2')) or "")
    added = json.loads(data)
    added["receipt"]["note"] = "all is well"
    assert "was changed" in (_fault(file, json.dumps(added).encode()) or "")
    assert "not signed" in (_fault(file, encoded(SignedReceipt(_receipt()))) or "")
    other = tmp_path / "other.pem"
    signing.private_key(other)
    assert "another key" in (_fault(other, data) or "")


def test_a_public_key_is_enough_to_check(tmp_path: Path) -> None:
    """It can be given; without any key the message says how to."""
    private = signing.private_key(tmp_path / "key.pem")
    public = tmp_path / "public.pem"
    public.write_text(_public(private))
    worker = _worker(tmp_path / "absent.pem")
    data = encoded(signing.sign(_receipt(), private))
    key = signing.trusted_key(worker, public)
    assert signing.fault_of(decoded(data, "it"), signed_bytes(data, "it"), key) is None
    with pytest.raises(UsageError, match="no key to check a receipt with"):
        signing.trusted_key(worker, None)
    assert not (tmp_path / "absent.pem").exists()


@pytest.mark.parametrize("signature", ["\u00e9", "AAAA", "="])
def test_what_is_no_signature_does_not_count(signature: str, tmp_path: Path) -> None:
    """Anybody can write one beside the public key; it need not even be ASCII."""
    file = tmp_path / "key.pem"
    data = encoded(replace(signing.sign(_receipt(), signing.private_key(file)), signature=signature))
    assert "was changed" in (_fault(file, data) or "")


def test_a_number_that_is_too_long_is_refused() -> None:
    """In a field that is not read, Python's own decoder meets it first."""
    with pytest.raises(UsageError, match="it is no receipt"):
        signed_bytes(b'{"receipt":{"note":%s}}' % (b"9" * 5_000), "it")


@pytest.mark.parametrize("data", [b"", b"[]", b'{"receipt":{}}', b"\xff"])
def test_what_is_no_receipt_is_refused(data: bytes) -> None:
    """Anybody may have written the file."""
    with pytest.raises(UsageError, match="is no receipt"):
        decoded(data, "f")


@pytest.mark.parametrize(
    ("kinds", "held", "state"),
    [
        ([], {}, "complete"),
        ([TOMBSTONE], {}, "pending"),
        ([FOREIGN], {}, "complete"),
        ([TOMBSTONE, VALUE], {}, "incomplete"),
        ([], {"t": "a tag"}, "incomplete"),
    ],
)
def test_the_state_is_that_of_the_worst(kinds: list[str], held: dict[str, str], state: str) -> None:
    """A tombstone waits; a value, or a table's older version, is left."""
    findings: list[Any] = [Finding(what=kind, level="runs", file="f") for kind in kinds]
    assert state_of(findings, held) == state
