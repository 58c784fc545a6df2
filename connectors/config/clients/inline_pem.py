"""Checks keys and certificates that a connector made over REST has in its settings themselves.

OpenSSL reads them when a client is made, and all threads of the worker wait for it. A key may say itself how long that
takes: an encrypted one by the number of its rounds, which is up to its author, and one of DSA by the length of its
numbers, as its other half is computed from it (20 KiB: 51 s).
"""

from __future__ import annotations

import base64
import re
from typing import Final

from connectors.config.errors import RefusedValueError
from connectors.placeholders import FILES

KEYS: Final = frozenset({"ssl.key.pem", "sasl.oauthbearer.assertion.private.key.pem"})
"""librdkafka's settings that are a private key in PEM."""
PEM: Final = KEYS | {"ssl.certificate.pem", "ssl.ca.pem", "https.ca.pem"}
"""librdkafka's settings in PEM."""
LONGEST_PEM: Final = 64 << 10
"""Characters of a setting in PEM: 30 certificates, and keys of RSA of up to 100,000 bits, are read in 10 ms."""
LONGEST_TEXT: Final = 16 << 10
"""Characters of any other setting. OpenSSL takes 1 ms for each KiB of a list of cipher suites, of which it has 150."""
_BEGIN: Final = "-----BEGIN"
_BLOCK: Final = re.compile(r"-----BEGIN ([A-Z0-9 ]++)-----\r?\n([A-Za-z0-9+/=\r\n]++)-----END \1-----")
_PLAIN: Final = frozenset({"RSA PRIVATE KEY", "EC PRIVATE KEY", "EC PARAMETERS", "CERTIFICATE"})
_ANY_KIND: Final = "PRIVATE KEY"
_KINDS: Final = frozenset(
    bytes.fromhex(kind) for kind in ("2a864886f70d010101", "2a864886f70d01010a", "2a8648ce3d0201", "2b6570", "2b6571")
)
"""The object identifiers of RSA, RSASSA-PSS, elliptic curves, Ed25519 and Ed448, as DER has them."""
_SEQUENCE, _INTEGER, _OBJECT = 0x30, 0x02, 0x06
_INSTEAD: Final = f"put it into a file in a folder that {FILES} allows, and name that"


def check_text(name: str, value: str) -> None:
    """Raises RefusedValueError if a client would take long to read `value` of librdkafka's setting `name`."""
    longest = LONGEST_PEM if name in PEM else LONGEST_TEXT
    if len(value) > longest:
        raise RefusedValueError(f"a connector made over REST may have {longest >> 10} Ki characters here; {_INSTEAD}.")
    if name not in PEM:
        return
    if "ENCRYPTED" in value or "Proc-Type" in value:
        raise RefusedValueError(f"it is encrypted, which a connector made over REST may not have here; {_INSTEAD}.")
    if name in KEYS and not _is_plain_key(value):
        raise RefusedValueError(
            f"it is no key of RSA or of an elliptic curve in PEM, which a connector made over REST may have here; "
            f"{_INSTEAD}."
        )


def _is_plain_key(text: str) -> bool:
    """Returns whether each block of `text` is a key of a kind that is read at once, or a certificate."""
    blocks = [(block[1], block[2]) for block in _BLOCK.finditer(text)]
    return len(blocks) == text.count(_BEGIN) and all(
        label in _PLAIN or (label == _ANY_KIND and _kind(body) in _KINDS) for label, body in blocks
    )


def _kind(body: str) -> bytes | None:
    """Returns the object identifier of the algorithm of a key in PKCS #8; None for anything else."""
    lines = [line.strip("\r") for line in body.removesuffix("\n").split("\n")]
    if "" in lines:  # OpenSSL would take what is above it for a header
        return None
    try:
        data = base64.b64decode("".join(lines), validate=True)
        key = _content(data, _SEQUENCE)
        rest = key[_bounds(key, _INTEGER)[1] :]
        return _content(_content(rest, _SEQUENCE), _OBJECT)
    except (ValueError, IndexError):
        return None


def _content(data: bytes, tag: int) -> bytes:
    begin, end = _bounds(data, tag)
    return data[begin:end]


def _bounds(data: bytes, tag: int) -> tuple[int, int]:
    """Returns the bounds of the content of the element with which `data` begins. Raises ValueError, IndexError."""
    first = data[1]
    size = first & 0x7F if first & 0x80 else 0
    if data[0] != tag or first == 0x80 or size > 4:  # the length is open, or longer than a setting is
        raise ValueError(tag)
    begin = 2 + size
    length = int.from_bytes(data[2:begin], "big") if size else first
    return begin, begin + length
