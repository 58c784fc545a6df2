"""Checks the signature of a receipt, and searches again for its keys: `keyfold erase verify`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from msgspec import Struct

from compactor.catalog.catalog import Catalog
from compactor.errors import ForeignContentError, MissingFileError
from compactor.storage.limits import LARGE_BYTES
from compactor.storage.locations import is_local, open_storage
from connectors.config.fields import store_location
from connectors.config.stores import connector_storage, store_options
from connectors.config.worker import WorkerConfig
from connectors.errors import UsageError
from connectors.operations.erase import signing
from connectors.operations.erase.key_matcher import KeyMatcher
from connectors.operations.erase.receipt import (
    INCOMPLETE,
    Finding,
    Receipt,
    decoded,
    erased_keys,
    signed_bytes,
    state_of,
)
from connectors.operations.erase.search import KeySearch, SearchPlaces

_NAME_IT: Final = "Name the receipt's file."


class VerifiedErasure(Struct, frozen=True, kw_only=True):
    """What a receipt says, and what there is now. `fault`: why its signature does not count, None if it does.

    `state` is that of now: `complete`, `pending` or `incomplete`. `searches_bytes`: the keys were given, so that
    all files were searched for their bytes.
    """

    id: str
    connector: str
    fault: str | None
    receipt_state: str
    state: str
    searches_bytes: bool
    searched: dict[str, int]
    findings: tuple[Finding, ...]

    @property
    def is_sound(self) -> bool:
        """Whether the signature counts, and nothing is left that an erasure removes."""
        return self.fault is None and self.state != INCOMPLETE


def verify(
    worker: WorkerConfig, file: str, keys: Sequence[bytes] | None = None, public_key: Path | None = None
) -> VerifiedErasure:
    """Verifies the receipt in `file`, a path or the URL of an object; with its `keys` it searches for their bytes too.

    Raises UsageError if it is no receipt, is not of the keys, or is of another storage than the worker's; StorageError.
    """
    data = _content(worker, file)
    signed = decoded(data, file)
    fault = signing.fault_of(signed, signed_bytes(data, file), signing.trusted_key(worker, public_key))
    receipt = signed.receipt
    salt = _salt(receipt, file)
    ordered = None if keys is None else _in_order(receipt, salt, keys)
    storage = connector_storage(worker, receipt.connector)
    state = Catalog.open(storage, receipt.connector).state
    if state.catalog_id != receipt.catalog_id:
        raise UsageError(
            f"The receipt is of catalog {receipt.catalog_id} in {receipt.storage}, and {storage.location} has not "
            "that one.",
            "Give the worker file with the storage.location that was erased from; a deleted connector has none.",
        )
    where = receipt.snapshot_location if fault is None else None  # anybody may have written another place there
    place = None if where is None else open_storage(store_location(where), store_options(worker), shared=True)
    matcher = KeyMatcher(salt, receipt.keys, ordered, state.key_identity)
    places = SearchPlaces(receipt.connector, receipt.catalog_id, storage, place)
    since_ms = receipt.ended_ms or receipt.began_ms
    result = KeySearch(places, matcher, receipt.tombstones, since_ms).everywhere()
    return VerifiedErasure(
        id=receipt.id,
        connector=receipt.connector,
        fault=fault,
        receipt_state=receipt.state,
        state=state_of(result.findings, {}),
        searches_bytes=matcher.searches_bytes,
        searched=result.searched,
        findings=result.findings,
    )


def _content(worker: WorkerConfig, file: str) -> bytes:
    """Reads the receipt; an object as the worker file says that its store is reached."""
    try:
        place = store_location(file)
    except ValueError as error:
        raise UsageError(f"{file} names no receipt: {error}.", _NAME_IT) from None
    folder, _, name = place.rpartition("/")
    if is_local(place):
        return _of_file(Path(place))
    if not name or folder.endswith("/"):
        raise UsageError(f"{file} names no receipt: it is a whole store.", _NAME_IT)
    try:
        return open_storage(folder, store_options(worker)).read(name, LARGE_BYTES)
    except MissingFileError:
        raise UsageError(f"{file} cannot be read: there is no such object.", _NAME_IT) from None
    except ForeignContentError as error:
        raise UsageError(f"{file} is no receipt: {error.message}", _NAME_IT) from error


def _of_file(file: Path) -> bytes:
    try:
        with file.open("rb") as stream:
            data = stream.read(LARGE_BYTES + 1)
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}.", _NAME_IT) from error
    if len(data) > LARGE_BYTES:
        raise UsageError(f"{file} has more than {LARGE_BYTES:,} bytes: it is no receipt.", _NAME_IT)
    return data


def _salt(receipt: Receipt, file: str) -> bytes:
    try:
        return bytes.fromhex(receipt.salt)
    except ValueError:
        raise UsageError(f"{file} is no receipt of an erasure: its salt is not hexadecimal.", "Name another.") from None


def _in_order(receipt: Receipt, salt: bytes, keys: Sequence[bytes]) -> list[bytes]:
    """Returns `keys` in the order of the receipt. Raises UsageError if they are not its keys."""
    by_hash = {erased.sha256: key for key, erased in zip(keys, erased_keys(salt, keys), strict=True)}
    if by_hash.keys() != {each.sha256 for each in receipt.keys}:
        raise UsageError(
            f"The {len(by_hash)} keys are not the {len(receipt.keys)} of the receipt.",
            "Give all of them, in the form that they were erased in; without keys their hashes are searched for.",
        )
    return [by_hash[each.sha256] for each in receipt.keys]
