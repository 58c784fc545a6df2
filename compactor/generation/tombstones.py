"""Writes the tombstones that a generation begins with: one for each key that the output holds (step G2).

These are the only records that keyfold makes and no source has. They have the offsets below 0 in the log, so every
record of the source comes after them: the first fold keeps the tombstones that no record supersedes.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Final

import pyarrow as pa

from compactor.model import record
from compactor.model.log import Run
from compactor.model.record import TopicPartition
from compactor.runs import paths
from compactor.runs.writer import RunTarget, write_run
from compactor.storage.base import Storage

# Tombstones that are made in memory at a time.
_ROWS: Final = 50_000
# Kafka's id of the timestamp type CreateTime.
_CREATE_TIME: Final = 0


Compare = Callable[[bytes], tuple[bytes | None, str | None]]
"""Finds the `key_identity` and the `key_encoding` (`record.RUN`) of a key."""


def staying(compare: Compare | None, moved: Collection[bytes]) -> Compare:
    """Returns `compare`, but each of `moved` is the key of no other record.

    So nothing takes the place of their tombstones here, as a later record of the same key in the same log otherwise
    does. A secret of this moment is in the identity that they get, so that no record can have it.
    """
    secret = secrets.token_bytes(16)

    def compared(key: bytes) -> tuple[bytes | None, str | None]:
        own = (None, None) if compare is None else compare(key)
        return (secret + key, own[1]) if key in moved else own

    return compared


def write_tombstones(
    storage: Storage,
    tp: TopicPartition,
    keys: Sequence[bytes],
    epoch: int,
    now_ms: int,
    max_bytes: int,
    compare: Compare | None = None,
    moved: Collection[bytes] = (),
) -> Run | None:
    """Writes a tombstone of `now_ms` for each of `keys` of `tp`, by that order; returns their run, None without keys.

    Without `compare` keys are compared by their bytes. The next records of those that are `moved` go to other output
    partitions (compaction.scope=topic). Raises StorageError, and what `compare` raises.
    """
    target = RunTarget(
        storage=storage, prefix=paths.prefix(epoch, "generation"), max_bytes=max_bytes, arrived_ms=now_ms
    )
    compare = staying(compare, moved) if moved else compare
    return write_run(_batches(tp, keys, now_ms, compare), target, "generation.write", -len(keys), 0, now_ms)


def _batches(
    tp: TopicPartition, keys: Sequence[bytes], now_ms: int, compare: Compare | None
) -> Iterator[pa.RecordBatch]:
    for first in range(0, len(keys), _ROWS):
        some = keys[first : first + _ROWS]
        rows, lowest = len(some), first - len(keys)
        columns = {
            "topic": pa.repeat(tp.topic, rows),
            "partition": pa.repeat(pa.scalar(tp.partition, pa.int32()), rows),
            "offset": pa.array(range(lowest, lowest + rows), pa.int64()),
            "timestamp": pa.repeat(pa.scalar(now_ms, pa.int64()), rows),
            "timestamp_type": pa.repeat(pa.scalar(_CREATE_TIME, pa.int32()), rows),
            "key": pa.array(some, pa.binary()),
        }
        if compare is not None:
            compared = [compare(key) for key in some]
            columns[record.KEY_IDENTITY] = pa.array([identity for identity, _ in compared], pa.binary())
            columns[record.KEY_ENCODING] = pa.array([encoding for _, encoding in compared], pa.string())
        absent = {field.name: pa.nulls(rows, field.type) for field in record.RUN if field.name not in columns}
        yield pa.RecordBatch.from_arrays([{**columns, **absent}[name] for name in record.RUN.names], schema=record.RUN)
