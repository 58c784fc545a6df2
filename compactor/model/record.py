"""A record as keyfold keeps it: its columns in Arrow and in Spark, its partition, and the measure of its bytes.

Timestamps are int64 ms since the epoch, as in Kafka: Spark's microseconds cannot hold every int64 of ms.
`timestamp_type` has the ids of Kafka's `TimestampType`: -1 none, 0 CreateTime, 1 LogAppendTime.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Final, NamedTuple, Protocol, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct
from numpy.typing import NDArray


class TopicPartition(NamedTuple):
    """One partition of one source topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class OfTopic(Protocol):
    """What belongs to one source topic."""

    @property
    def topic(self) -> str:
        """Its name."""


_OfTopic = TypeVar("_OfTopic", bound=OfTopic)


def by_topic(items: Iterable[_OfTopic]) -> dict[str, tuple[_OfTopic, ...]]:
    """Groups `items` by topic, in their order, in one pass."""
    groups: dict[str, list[_OfTopic]] = {}
    for item in items:
        groups.setdefault(item.topic, []).append(item)
    return {topic: tuple(group) for topic, group in groups.items()}


class OfPartition:
    """What belongs to one partition of one source topic."""

    __slots__ = ()

    topic: str
    partition: int

    @property
    def tp(self) -> TopicPartition:
        """Its topic and partition."""
        return TopicPartition(self.topic, self.partition)


class RangeRead(Struct, frozen=True, kw_only=True):
    """A reading task's range report: it read all of [lo, hi), which holds `records` records.

    `start` is above `lo` only if the log began there: the offsets between were lost. Of the records, `superseded`
    were left out, as a later one of the same range has the same key, `filtered` were dropped as they were read, and
    `late` lost against one with a lower offset, by the connector's order. `late_last` is a digest of the last one's key
    if that is late, as `PartitionLog` has it, empty if it is not; None if no record of it was decided about.
    `truncates` of those filtered said that a table of the source was emptied, the last of them at `last_truncate`. The
    latest of these by the connector's order is at `truncate_at`, and has the value `truncate_order` of it; None: the
    order is no field.
    """

    tp: TopicPartition
    topic_id: str
    lo: int
    hi: int
    start: int
    records: int
    superseded: int = 0
    filtered: int = 0
    late: int = 0
    late_last: str | None = None
    truncates: int = 0
    last_truncate: int | None = None
    truncate_order: bytes | None = None
    truncate_at: int | None = None


TIMESTAMP_TYPES: Final = {-1: "NoTimestampType", 0: "CreateTime", 1: "LogAppendTime"}

OWN_HEADERS: Final = "keyfold."
"""How the names of keyfold's own headers begin; those of an upstream keyfold are not published."""

HEADERS: Final = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))

RECORDS: Final = pa.schema(
    [
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", pa.int64()),
        pa.field("timestamp_type", pa.int32()),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", HEADERS),
    ]
)
"""What a source yields, in the order of Kafka's ConsumerRecord."""

RANGE: Final = pa.struct(
    [
        pa.field("topic_id", pa.string()),
        pa.field("lo", pa.int64()),
        pa.field("hi", pa.int64()),
        pa.field("start", pa.int64()),
        pa.field("records", pa.int64()),
        pa.field("filtered", pa.int64()),
        pa.field("truncates", pa.int64()),
        pa.field("last_truncate", pa.int64()),
        pa.field("truncate_order", pa.binary()),
        pa.field("truncate_at", pa.int64()),
    ]
)
"""A reading task's range report: every record of [lo, hi) was read, there were `records` of them, and reading
began at `start` (above lo only if records were lost and on.data.loss is `skip`). Of them, `filtered` were dropped by
what looked at them before they came here; null is none. `truncates` of these said that a table of the source was
emptied, `last_truncate` is the offset of the last such record; null is none. `truncate_order` and `truncate_at` are
value and offset of the latest by the connector's order, if that is a field."""

SOURCE: Final = RECORDS.append(pa.field("rejected", pa.string())).append(pa.field("range", RANGE))
"""What a source yields when it also reports its ranges: `range` is null on records; on a range report the other
columns but topic, partition and offset (= lo) are null. `rejected` says why a record could not be read whole: what of
it could not is left out."""

NULL_KEY: Final = "null key"
"""Why a record without a key is rejected: it is the latest of no key."""

KEY_IDENTITY: Final = "key_identity"
KEY_ENCODING: Final = "key_encoding"
ORDER_VALUE: Final = "order_value"

RUN: Final = pa.schema(
    [
        *RECORDS,
        pa.field("delete_horizon", pa.int64()),
        pa.field("rejected", pa.string()),
        pa.field(KEY_IDENTITY, pa.binary()),
        pa.field(KEY_ENCODING, pa.string()),
        pa.field(ORDER_VALUE, pa.binary()),
    ]
)
"""What a run's Parquet holds: `delete_horizon` in ms, set once on a tombstone by the first clean that
keeps it (KIP-534); `rejected` says why a record can never be folded.

`key_identity` is what is compared in place of `key` (`as_compared`), null if they are the same. `key_encoding` says
how `key` encodes it: two records of one identity and one encoding have the same key; null says nothing.

`order_value` is what a record is ordered by if that is a field (compaction.order): of two the greater one, by their
bytes, is later. Null: it has none. No bytes: it is a tombstone without one, which takes that of the record before it
(`model.order`). Files of older versions lack the last three, which reads as null."""


def as_compared(rows: pa.RecordBatch | pa.Table) -> pa.RecordBatch | pa.Table:
    """Returns `rows` with what is compared as their `key`: its identity, if it has one of its own."""
    identity = rows[KEY_IDENTITY]
    if identity.null_count == len(identity):
        return rows
    return rows.set_column(rows.schema.get_field_index("key"), "key", pc.coalesce(identity, rows["key"]))


_SPARK_TYPES: Final = {pa.string(): "string", pa.int32(): "int", pa.int64(): "bigint", pa.binary(): "binary"}


def ddl(schema: pa.Schema) -> str:
    """Returns `schema` as Spark writes it, for `mapInArrow` and `DataSource.schema`."""
    return ", ".join(f"`{field.name}` {_spark_type(field.type)}" for field in schema)


def _spark_type(kind: pa.DataType) -> str:
    if pa.types.is_list(kind):
        return f"array<{_spark_type(kind.value_type)}>"
    if pa.types.is_struct(kind):
        return f"struct<{', '.join(f'`{field.name}`: {_spark_type(field.type)}' for field in kind)}>"
    return _SPARK_TYPES[kind]


def sizes(batch: pa.RecordBatch, a_header: int = 0) -> NDArray[np.int64]:
    """Returns the bytes of each record of `batch`, as `measure` counts them, and `a_header` more for each header."""
    own = _lengths(batch["key"]) + _lengths(batch["value"])
    headers = pc.list_flatten(batch["headers"])
    if len(headers) == 0:
        return own
    each = _lengths(pc.struct_field(headers, 0)) + _lengths(pc.struct_field(headers, 1)) + a_header
    rows = pc.list_parent_indices(batch["headers"]).to_numpy()
    return own + np.bincount(rows, weights=each, minlength=batch.num_rows).astype(np.int64)


def _lengths(column: pa.Array) -> NDArray[np.int64]:
    return pc.fill_null(pc.binary_length(column), 0).to_numpy(zero_copy_only=False).astype(np.int64)


def measure(batch: pa.RecordBatch | pa.Table) -> int:
    """Returns the bytes of all records of `batch`: keys, values and headers, uncompressed; what limits count."""
    plain = sum(_total(pc.binary_length(batch[name])) for name in ("key", "value"))
    headers = pc.list_flatten(batch["headers"])
    parts = (pc.struct_field(headers, index) for index in (0, 1))
    return plain + sum(_total(pc.binary_length(part)) for part in parts)


def _total(lengths: pa.Array | pa.ChunkedArray) -> int:
    return int(pc.sum(lengths).as_py() or 0)


PARTITION: Final = ("topic", "partition")
"""The columns that name a partition."""


def partition_starts(batch: pa.RecordBatch) -> NDArray[np.int64]:
    """Returns the first row of each stretch of rows of one partition."""
    changes = [pc.not_equal(batch[name].slice(1), batch[name].slice(0, len(batch) - 1)) for name in PARTITION]
    return np.concatenate(([0], 1 + pc.indices_nonzero(pc.or_(*changes)).to_numpy().astype(np.int64)))


def partitions_of(batch: pa.RecordBatch, rows: NDArray[np.int64]) -> Iterator[TopicPartition]:
    """Yields the partition of each of `rows`."""
    columns = (batch[name].take(pa.array(rows)).to_pylist() for name in PARTITION)
    return (TopicPartition(*name) for name in zip(*columns, strict=True))


def partition_spans(batch: pa.RecordBatch) -> Iterator[tuple[TopicPartition, int, int]]:
    """Yields each partition of neighbouring rows, with its first row and the row after its last."""
    if batch.num_rows:
        first = partition_starts(batch)
        bounds = pairwise((*first.tolist(), batch.num_rows))
        for tp, (start, end) in zip(partitions_of(batch, first), bounds, strict=True):
            yield tp, start, end


def split_by_partition(batch: pa.RecordBatch) -> Iterator[tuple[TopicPartition, pa.RecordBatch]]:
    """Yields the rows of `batch` by partition, each by offset."""
    if batch.num_rows and partition_starts(batch).size > 1:
        order = [(name, "ascending") for name in (*PARTITION, "offset")]
        batch = batch.take(pc.sort_indices(batch, sort_keys=order))
    for tp, start, end in partition_spans(batch):
        yield tp, batch.slice(start, end - start)
