"""Signs receipts with Ed25519; the private key is a file that is made when it is first used."""

from __future__ import annotations

import base64
import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)

from connectors.config.worker import WorkerConfig
from connectors.errors import ConfigError, UsageError
from connectors.operations.erase.receipt import Receipt, SignedReceipt, canonical

_MODE: Final = 0o600
_FOLDER_MODE: Final = 0o700
_MOST_BYTES: Final = 65_536
"""Bytes of a key's file that are read; one of Ed25519 has 119."""


def key_file(worker: WorkerConfig) -> Path:
    """Returns the file of the private key: `erasure.key.file`, else one of this account."""
    if worker.erasure_key_file is not None:
        return worker.erasure_key_file
    config = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(config) / "keyfold" / "erasure-key.pem"


def private_key(file: Path) -> Ed25519PrivateKey:
    """Reads the private key; makes it, with mode 0600, if the file is absent. Raises ConfigError."""
    try:
        if not file.exists():
            _make(file)
        if file.stat().st_mode & 0o077:
            raise ConfigError(f"{file} can be read by other accounts: who has it signs receipts.", f"chmod 600 {file}")
        key = load_pem_private_key(_read(file), None)
    except (OSError, ValueError, TypeError) as error:
        raise ConfigError(f"The key of {file} cannot be used: {error}.", _GIVE) from error
    if not isinstance(key, Ed25519PrivateKey):
        raise ConfigError(f"{file} has no Ed25519 key.", _GIVE)
    return key


_GIVE: Final = "Set erasure.key.file to a file with an Ed25519 key in PEM, or to one that keyfold may make."


def _make(file: Path) -> None:
    """Makes a key under another name first: a process that comes between reads a whole one."""
    file.parent.mkdir(_FOLDER_MODE, parents=True, exist_ok=True)
    made = Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    temporary = file.with_name(f".{file.name}-{os.getpid()}")
    temporary.unlink(missing_ok=True)
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _MODE), "wb") as stream:
        stream.write(made)
        stream.flush()
        os.fsync(stream.fileno())
    with suppress(FileExistsError):  # of two that make it the first one counts
        os.link(temporary, file)
    temporary.unlink()


def _read(file: Path) -> bytes:
    with file.open("rb") as stream:
        return stream.read(_MOST_BYTES)


def sign(receipt: Receipt, key: Ed25519PrivateKey) -> SignedReceipt:
    """Signs `receipt`."""
    return SignedReceipt(receipt, _text(key.public_key()), base64.b64encode(key.sign(canonical(receipt))).decode())


def trusted_key(worker: WorkerConfig, given: Path | None) -> Ed25519PublicKey:
    """Returns the public key of the file `given`, else that of our own. Raises UsageError without any."""
    file = given or key_file(worker)
    if not file.is_file():
        raise UsageError(
            f"There is no key to check a receipt with: {file} is absent.",
            "Give --public-key FILE, or run it where the receipt was made.",
        )
    try:
        data = _read(file)
        if b"PRIVATE" in data:
            return private_key(file).public_key()
        key = load_pem_public_key(data)
    except (OSError, ValueError, TypeError) as error:
        raise UsageError(f"{file} has no public key: {error}.", "Give one of Ed25519 in PEM.") from error
    if not isinstance(key, Ed25519PublicKey):
        raise UsageError(f"{file} has no Ed25519 key.", "Give one of Ed25519 in PEM.")
    return key


def fault_of(signed: SignedReceipt, content: bytes, key: Ed25519PublicKey) -> str | None:
    """Returns why the signature of a receipt does not count; None if `key` has signed `content`."""
    if not signed.signature:
        return "it is not signed: the erasure has not ended"
    if signed.public_key != _text(key):
        return f"it was signed with another key: {signed.public_key[:60]}"
    try:
        key.verify(base64.b64decode(signed.signature, validate=True), content)
    except (InvalidSignature, ValueError):
        return "its signature is not of what it says: it was changed"
    return None


def _text(key: Ed25519PublicKey) -> str:
    return base64.b64encode(key.public_bytes(Encoding.Raw, PublicFormat.Raw)).decode()
