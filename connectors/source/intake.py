"""`compactor.ingest.ingest.Intake` as one of Spark's strings: a store by its location."""

from __future__ import annotations

import msgspec

from compactor.ingest.ingest import Intake
from compactor.runs.writer import RunTarget
from compactor.storage.local import open_storage


class _Text(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    location: str
    prefix: str
    max_bytes: int
    keyed: bool
    folds: bool


def encode(intake: Intake) -> str:
    """`intake` before it is that of a micro-batch: `Intake.of_batch` comes where the batch is planned."""
    target = intake.target
    text = _Text(
        location=target.storage.location,
        prefix=target.prefix,
        max_bytes=target.max_bytes,
        keyed=intake.keyed,
        folds=intake.folds,
    )
    return msgspec.json.encode(text).decode()


def decode(text: str) -> Intake:
    """What `encode` was given. Raises msgspec.DecodeError, StorageError for a location that no store is for."""
    found = msgspec.json.decode(text, type=_Text)
    target = RunTarget(storage=open_storage(found.location), prefix=found.prefix, max_bytes=found.max_bytes)
    return Intake(target=target, keyed=found.keyed, folds=found.folds)
