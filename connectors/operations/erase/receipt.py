"""What an erasure has done, and what is left: the receipt, as JSON that is signed.

Its keys are salted hashes. Who has the receipt can try out which keys these are if the keys are easy to guess.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec
from msgspec import Struct

from compactor.decode_errors import UNDECODABLE, why
from compactor.errors import MissingFileError, StorageError
from compactor.json_types import decoded_as
from compactor.storage.base import Storage
from compactor.storage.limits import LARGE_BYTES
from connectors.errors import UsageError
from connectors.operations.erase.unreadable import is_of_file
from connectors.typed.plain_values import comparable

FOLDER: Final = "erasures"
"""In the connector's folder: a receipt a file, none of which is ever removed by keyfold but with the connector."""
_INDENTED_BYTES: Final = 1 << 20
"""Bytes up to which a receipt is indented. Of 100,000 keys it would have more than 77 MB, and 64 MiB are read back."""
MOST_FINDINGS: Final = 10_000
"""Findings that a receipt names, but for the first of each kind in a file, which tells what has to go."""
BEGUN: Final = "begun"
COMPLETE: Final = "complete"
PENDING: Final = "pending"
INCOMPLETE: Final = "incomplete"

VALUE: Final = "value"
TOMBSTONE: Final = "tombstone"
REWRITTEN: Final = "rewritten"
BYTES: Final = "bytes"
UNSEARCHED: Final = "unsearched"
UNCOMPARED: Final = "uncompared"
UNFINISHED: Final = "unfinished"
FOREIGN: Final = "foreign"
"""What is found of a key: a value from before its tombstone; a tombstone; a value that came after it; bytes in another
file than one of records; a file that cannot be searched; one of a table's newest version, of which the keys cannot be
compared; one that a dead writer has left, which the vacuum removes; a snapshot of another catalog, which keyfold
leaves."""
_WAITING: Final = frozenset({TOMBSTONE, UNFINISHED})
"""What goes by itself once its time is over."""
_LEFT_ALONE: Final = frozenset({REWRITTEN, FOREIGN, UNCOMPARED})
"""What an erasure is not about."""


class ErasedKey(Struct, frozen=True):
    """SHA-256 of the salt and a key, in hexadecimal digits.

    `json` is that of what typed keys are compared by, None if only the bytes tell; `identity` that of what the
    connector compares the key by, if that is not its bytes.
    """

    sha256: str
    json: str | None = None
    identity: str | None = None


class Tombstone(Struct, frozen=True, kw_only=True):
    """A tombstone of the key with this number in the receipt; `sent`: by the erasure, else it was there before."""

    key: int
    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    sent: bool


class Finding(Struct, frozen=True, kw_only=True):
    """What a file has of a key. `until_ms`: when a tombstone may go; None: not known yet, or of no tombstone."""

    what: str
    level: str
    file: str
    key: int | None = None
    topic: str | None = None
    partition: int | None = None
    offset: int | None = None
    until_ms: int | None = None


class Elsewhere(Struct, frozen=True, kw_only=True):
    """A place outside keyfold's files that may have the keys, until when by its settings (None: nothing says so)."""

    what: str
    name: str
    until_ms: int | None
    note: str


class Receipt(Struct, frozen=True, kw_only=True):
    """An erasure. Times in ms; `state` is one of those above.

    `gone_ms` says for each level when a search first found no value there. `held` says by topic why older versions of
    its table stay. `absent` are the numbers of the keys that no log had anything of. `searched` counts the files by
    level, `files` names them.
    """

    format_version: int = 1
    id: str
    connector: str
    catalog_id: str
    storage: str
    snapshot_location: str | None
    table: str
    salt: str
    keys: tuple[ErasedKey, ...]
    topics: tuple[str, ...] = ()
    began_ms: int
    ended_ms: int | None = None
    state: str = BEGUN
    tombstones: tuple[Tombstone, ...] = ()
    absent: tuple[int, ...] = ()
    snapshots_removed: tuple[str, ...] = ()
    run_files_removed: int = 0
    held: dict[str, str] = {}
    gone_ms: dict[str, int] = {}
    searched: dict[str, int] = {}
    files: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    elsewhere: tuple[Elsewhere, ...] = ()


class SignedReceipt(Struct, frozen=True):
    """A receipt with the signature of its canonical JSON; both are base64, and empty as long as it is begun."""

    receipt: Receipt
    public_key: str = ""
    signature: str = ""


def canonical_key(key: bytes) -> bytes | None:
    """Returns what typed keys are compared by: a key that is JSON, in the form of `comparable`, without spaces.

    Of JSON with a schema that is the payload. Returns None for what typed columns do not tell: what is no JSON, nothing
    but nulls, fields that may have a default, and digits that may be a number of keyfold.Long or the like.
    """
    try:
        said = msgspec.json.decode(key)
    except UNDECODABLE:
        return None
    if isinstance(said, dict) and said.keys() == {"schema", "payload"}:
        if isinstance(said["payload"], dict) and b'"default"' in key:
            return None
        said = said["payload"]
    elif isinstance(said, int | float) and len(key) in _NUMBER_BYTES:
        return None
    is_told = said is not None and (not isinstance(said, dict) or any(part is not None for part in said.values()))
    return msgspec.json.encode(comparable(said), order="sorted") if is_told else None


_NUMBER_BYTES: Final = frozenset({2, 4, 8})
"""Bytes of the numbers that keyfold.Short, Integer, Long, Float and Double write."""


def hashed(salt: bytes, key: bytes) -> str:
    """Returns the salted SHA-256 of `key`."""
    return hashlib.sha256(salt + key).hexdigest()


def erased_keys(salt: bytes, keys: Sequence[bytes], compared: Sequence[bytes] | None = None) -> tuple[ErasedKey, ...]:
    """Returns `keys` as a receipt has them; `compared` is what the connector compares each by, if not its bytes."""

    def erased(key: bytes, identity: bytes | None) -> ErasedKey:
        form = canonical_key(key)
        return ErasedKey(
            hashed(salt, key),
            None if form is None else hashed(salt, form),
            None if identity is None else hashed(salt, identity),
        )

    return tuple(map(erased, keys, [None] * len(keys) if compared is None else compared))


def new_salt() -> bytes:
    """Makes a salt of 128 bits."""
    return secrets.token_bytes(16)


def canonical(receipt: Receipt) -> bytes:
    """Returns what is signed of `receipt`: JSON without spaces, fields sorted, whatever its form in a file."""
    return msgspec.json.encode(msgspec.to_builtins(receipt), order="sorted")


def encoded(signed: SignedReceipt) -> bytes:
    """Returns a receipt as it is kept: JSON, indented if it is not of thousands of keys."""
    data = msgspec.json.encode(signed)
    return (data if len(data) > _INDENTED_BYTES else msgspec.json.format(data, indent=2)) + b"\n"


def decoded(data: bytes, where: str) -> SignedReceipt:
    """Reads a receipt. Raises UsageError, with the place that `data` is of, if it is none."""
    try:
        return decoded_as(data, SignedReceipt)
    except UNDECODABLE as error:
        raise UsageError(f"{where} is no receipt of an erasure: {why(error)}.", _NAME_IT) from None


def signed_bytes(data: bytes, where: str) -> bytes:
    """Returns the bytes that the signature of a receipt as it is kept has to be of, fields unknown here included.

    Raises UsageError, as `decoded` does, if an unknown field has what no receipt has.
    """
    try:
        said: dict[str, Any] = json.loads(data)
        return msgspec.json.encode(said["receipt"], order="sorted")
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{where} is no receipt of an erasure: {why(error)}.", _NAME_IT) from None


_NAME_IT: Final = "Name the file that keyfold erase has written."


def path_of(receipt_id: str) -> str:
    """Returns the path of a receipt in the connector's folder."""
    return f"{FOLDER}/{receipt_id}.json"


def begun_before(
    storage: Storage, catalog_id: str, keys: Sequence[bytes], compared: Sequence[bytes] | None
) -> Receipt | None:
    """Returns the erasure of exactly `keys` that was begun last and has not ended. Raises StorageError."""
    for name in reversed(storage.list(FOLDER)):
        try:
            receipt = decoded_as(storage.read(f"{FOLDER}/{name}", LARGE_BYTES), SignedReceipt).receipt
        except (*UNDECODABLE, MissingFileError):
            continue
        except StorageError as error:
            if not is_of_file(error):
                raise
            continue
        if receipt.state != BEGUN or receipt.catalog_id != catalog_id or len(receipt.keys) != len(keys):
            continue
        try:
            salt = bytes.fromhex(receipt.salt)
        except ValueError:  # a damaged receipt tells of no key
            continue
        if set(erased_keys(salt, keys, compared)) == set(receipt.keys):
            return receipt
    return None


def state_of(findings: Iterable[Finding], held: dict[str, str]) -> str:
    """Returns what an erasure has come to by what is left."""
    kinds = {finding.what for finding in findings}
    if held or kinds - _WAITING - _LEFT_ALONE:
        return INCOMPLETE
    return PENDING if kinds & _WAITING else COMPLETE
