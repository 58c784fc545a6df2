"""What the engine needs from outside, as its ports.

`connectors.runtime.kafka_broker` and `connectors.sinks.publisher` implement what it needs from Kafka,
`connectors.chain.fill` and `connectors.typed.column_types` what looks into values, `connectors.tables` what writes
tables.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

import pyarrow as pa

from compactor.model.actions import AnyAction
from compactor.model.log import PartitionLog
from compactor.model.position import Position, Tail
from compactor.model.publish_plan import PublishPlan, PublishResult
from compactor.model.record import RangeRead, TopicPartition
from compactor.model.state import CatalogState
from compactor.storage.base import Storage


class Broker(Protocol):
    """Gives access to topics, committed positions and output of one connector."""

    def admit(self, state: CatalogState, reads: Sequence[RangeRead]) -> tuple[AnyAction, ...]:
        """Returns actions that add the topics and partitions of `reads` that the catalog does not know.

        Their output partitions exist when it returns. Raises OutputError, UnreachableError.
        """

    def ends(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Reads the last stable offsets of `partitions`, without those of topics that do not exist."""

    def fence(self, buckets: Iterable[int]) -> None:
        """Fences every producer of `buckets`, as step T2 does: transactions that they left open are aborted."""

    def positions(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, Position | None]:
        """Reads what the connector's group has committed, after pending transactions; None if there is nothing."""

    def tail(self, state: CatalogState, log: PartitionLog) -> Tail:
        """Reads the last source offset of `log` in the output, of which no record may be hidden from readers.

        Raises NotVisibleError if an open transaction hides some for long: one of ours among them would be sent again.
        """

    def publisher(self, state: CatalogState) -> Publisher:
        """Returns the publisher for Spark's tasks, into which it is pickled."""

    def local_publisher(self, state: CatalogState, stopped: Callable[[], bool]) -> Publisher:
        """Returns the publisher for this process, which may keep its connections for the next publish.

        It ends soon, with an error, once `stopped` is true.
        """

    def output_starts(self, state: CatalogState, topic: str) -> Mapping[int, int]:
        """Reads the low watermark of each output partition of the source topic `topic`."""

    def hidden(self, state: CatalogState, topics: Collection[str]) -> Mapping[str, str]:
        """Waits a while until read_committed readers see all that was published of the source topics `topics`.

        Returns the topics of which they do not see all by then, each with the reason as a sentence.
        """

    def resume_safe_ms(self, state: CatalogState, topic: str) -> int | None:
        """Reads for how many ms a reader of a snapshot of `topic` can go on from it in the output.

        None: for ever; 0 if no time can be promised.
        """


class Publisher(Protocol):
    """Does steps 6 to 11 for one bucket. It can be pickled, and runs in a Spark task or in this process."""

    def publish(self, plan: PublishPlan, records: Iterator[pa.RecordBatch]) -> Sequence[PublishResult]:
        """Sends `records` and commits the positions of `plan`. Returns one PublishResult for each target.

        `records` have the schema record.RUN, by partition and offset, rejected ones among them; a target may have none.
        Raises FencedError, PositionMovedError, PublishInterruptedError, OutcomeUnknownError.
        """


Headers = Sequence[tuple[str, bytes | None]]
WHOLE: Final = "value"
"""The column of values that have no fields."""
LAST_TIME_MS: Final = (1 << 63) // 1000 - 1
"""Most tools count µs in 64 bits: a time in ms further from the epoch than this makes them fail."""


class Filled(NamedTuple):
    """A value after it was filled, or as it was; `left` of its fields hold the placeholder still.

    `is_unreadable`: its fields cannot be read, so nothing is known of them.
    """

    value: bytes
    left: int
    is_unreadable: bool = False


class Fill(Protocol):
    """Takes fields of a value that hold a placeholder from the value before it (`compaction.fill`)."""

    def stop_with(self, stopped: Callable[[], bool]) -> None:
        """Has `fill` raise an error soon, in place of waiting for a schema, once `stopped` returns True."""

    def close(self) -> None:
        """Lets go of connections; it is not used after that."""

    def may_need(self, values: pa.Array) -> pa.Array:
        """Returns which of `values` (binary) may hold a placeholder; False is certain."""

    def fill(self, value: bytes, headers: Headers, earlier: bytes | None, earlier_headers: Headers) -> Filled:
        """Returns `value` with the fields of `earlier` in place of placeholders, as far as it has them.

        `earlier` is the value of the record before it of the same key, None for a tombstone or none. The headers say
        how a value is written, if a converter writes that there. Raises what asking for a schema raises; a value that
        cannot be read stays as it is.
        """


class ColumnLayout(NamedTuple):
    """The columns that the keys or values of a snapshot become: the fields of `type`.

    `renamed` has the field of each column that has another name. `kept` is what the next snapshot begins with, None if
    it begins with nothing. `schemas` are those that records were read with, by which a converter writes them again.
    """

    type: pa.StructType
    renamed: Mapping[str, str]
    kept: str | None = None
    schemas: tuple[str, ...] = ()


class Decoded(NamedTuple):
    """What records became: `columns` has a struct of the layout for each, null if there is nothing.

    `unplaced` has the rows of those that fit no column, or cannot be read, each with the reason.
    """

    columns: pa.StructArray
    unplaced: Mapping[int, str]


class Survey(Protocol):
    """Collects which types the keys or values of one task's records have."""

    def add(self, batch: pa.RecordBatch) -> None:
        """Adds records (`key`, `value`, `headers`). Raises SnapshotError if nothing can be known of them for now."""

    def kinds(self) -> Mapping[bytes, int]:
        """Returns what was collected, each with the number of its records, for `ColumnTypes.layout`."""

    def close(self) -> None:
        """Lets go of connections; it is not used after that."""


class Decoder(Protocol):
    """Decodes the keys or values of one task's records."""

    def decode(self, batch: pa.RecordBatch) -> Decoded:
        """Decodes records (`key`, `value`, `headers`); a record never fails.

        Raises SnapshotError as `Survey.add`, and PortionTooLargeError if the columns of these records would take too
        much memory: the caller then decodes fewer at a time. One record alone is never refused.
        """

    def close(self) -> None:
        """Lets go of connections; it is not used after that."""


class ColumnTypes(Protocol):
    """Knows what keys, or values, hold (`snapshot.value.format=typed`). It is pickled into tasks."""

    @property
    def settings(self) -> str:
        """What differs between two that would make other columns of the same records."""

    @property
    def needs_survey(self) -> bool:
        """Whether the columns depend on the types that the records have."""

    @property
    def converter(self) -> Mapping[str, str]:
        """What reads and writes the bytes: its class under "class", and its settings; nothing of it is secret."""

    def survey(self) -> Survey:
        """Returns what collects types, in a task."""

    def layout(self, kinds: Mapping[bytes, int], kept: str | None, taken: Collection[str]) -> ColumnLayout:
        """Returns the columns of records of `kinds`, none named as one of `taken`; `kept` as `ColumnLayout` has it."""

    def decoder(self, layout: ColumnLayout) -> Decoder:
        """Returns what decodes to `layout`, in a task."""


class TableVersion(NamedTuple):
    """A state of a topic that its table is to equal: the typed files of the snapshot `snapshot` below `folder`.

    `settings` differs if the columns were made in another way. `appends`: the files have every record that is kept, and
    rows of the table stay. Offsets are the next to read, by partition number as text. `has_unique_keys`: no key can be
    in two rows, as there is one partition, or a key has one record over all of them.
    """

    connector: str
    catalog_id: str
    epoch: int
    topic: str
    snapshot: str
    appends: bool
    settings: str
    source_offsets: Mapping[str, int]
    output_offsets: Mapping[str, int]
    generations: Mapping[str, int]
    folder: Storage
    files: Sequence[str]
    has_unique_keys: bool = False

    @classmethod
    def of_no_snapshot(cls, connector: str, topic: str, catalog_id: str, epoch: int, folder: Storage) -> TableVersion:
        """Returns what names the table of `topic`, of which `folder` has the snapshots."""
        return cls(
            connector=connector,
            catalog_id=catalog_id,
            epoch=epoch,
            topic=topic,
            snapshot="",
            appends=False,
            settings="",
            source_offsets={},
            output_offsets={},
            generations={},
            folder=folder,
            files=(),
        )


class Tables(Protocol):
    """The tables of a connector's topics (`snapshot.table`), one a topic."""

    @property
    def settings(self) -> str:
        """What differs between tables of two kinds or places."""

    def commit(self, version: TableVersion) -> None:
        """Makes the topic's table equal `version`; does nothing if its newest commit of ours is of that snapshot.

        Raises SnapshotError, also if a newer owner has committed to the table.
        """

    def purge(self, version: TableVersion) -> str | None:
        """Removes all versions of the topic's table but the newest, and the files that only they need, for an erasure.

        Of `version` it takes what names the table. Returns why some stay; None if none does. Raises SnapshotError.
        """
