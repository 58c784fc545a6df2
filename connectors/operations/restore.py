"""Writes the records of a snapshot to a topic, each exactly once: steps S1 to S6 of docs/protocol.md.

The records of a snapshot have an order, that of its files and of the rows in them, and a snapshot never changes. So how
many of them have gone is all that a run has to know. The position of a group says it, as an offset of the topic's first
partition, and is committed in the transaction that sends them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from itertools import repeat
from types import MappingProxyType
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from confluent_kafka import TopicPartition as Partition
from confluent_kafka.admin import NewTopic
from msgspec import UNSET, Struct

from compactor.bin_packing import AtMost, pack, unit_weight
from compactor.decode_errors import UNDECODABLE
from compactor.errors import DamagedFileError, FoldError, MissingFileError
from compactor.json_types import decoded_as
from compactor.model.record import HEADERS, TopicPartition
from compactor.runs.checksums import sha256_of
from compactor.snapshot.content import APPEND
from compactor.snapshot.file_reader import open_file, read_file
from compactor.snapshot.manifest import Manifest, Typed
from connectors.config.clients.merged import client_config
from connectors.config.topics import is_internal
from connectors.config.worker import WorkerConfig
from connectors.errors import ConflictError, UsageError
from connectors.kafka import groups, producers
from connectors.kafka.admin import Admin, TopicInfo
from connectors.kafka.client_settings import PRODUCER_DEFAULTS, PRODUCER_PINNED
from connectors.kafka.sending_producer import SendingProducer, SendingWords, SentRecord
from connectors.operations.snapshots import pin
from connectors.placeholders import resolve
from connectors.sinks import output_topic
from connectors.sinks.encode import original_headers, rows
from connectors.snapshot_folder import SnapshotFolder
from connectors.typed.column_types import ValueTypes
from connectors.typed.converter_settings import stored_chain
from connectors.typed.written_again import TypedRowWriter

# Records, and bytes of them, in one transaction. More would be repeated as a whole if it fails; fewer would take more
# transactions, each of which waits for its coordinator.
_RECORDS: Final = 10_000
_BYTES: Final = 16 << 20
# How long (s) a transaction of an earlier run that is not decided yet is waited for.
_PENDING_S: Final = 60.0
_HEADERS: Final = "_headers"
_NEEDED: Final = ("_key", "_partition", "_timestamp")
"""Columns of a typed snapshot without which a record would go elsewhere, or be another one."""
_PREFIX: Final = "keyfold-restore-"
_VERIFY: Final = "keyfold snapshot verify says what is wrong with it; restore another snapshot, or put the file back."


class RestoreResult(Struct, frozen=True, kw_only=True):
    """What a run has done: `sent` of the snapshot's `records`; `before` of them had gone by then.

    `without_headers`: a typed snapshot does not have them.
    """

    snapshot: str
    topic: str
    created: bool
    records: int
    sent: int
    before: int
    without_headers: bool = False


class NewTopicSettings(Struct, frozen=True):
    """How a topic that is not there is made; `config` wins over what keyfold sets itself."""

    replication_factor: int = -1
    config: Mapping[str, str] = {}


class _Progress(Struct, frozen=True):
    """The metadata of the position: the topic that the records went to, the snapshot's folder, and its records.

    A later topic of the same name has another id, and none of the records. `converters` differs between those that
    write a typed snapshot's records in other ways.
    """

    topic_id: str
    snapshot: str
    records: int
    converters: str = ""

    @property
    def id(self) -> str:
        """The snapshot's id."""
        return self.snapshot.rpartition("/")[2]


class _Kafka(Struct, frozen=True):
    """The settings of a restore's clients, for one cluster."""

    admin: dict[str, Any]
    producer: dict[str, Any]

    @classmethod
    def of(cls, worker: WorkerConfig) -> _Kafka:
        return cls(
            client_config("admin", worker, None, {"client.id": "keyfold-restore"}),
            client_config("producer", worker, None, PRODUCER_PINNED, PRODUCER_DEFAULTS),
        )


def restore(
    worker: WorkerConfig,
    named: SnapshotFolder,
    topic: str,
    create: NewTopicSettings | None = None,
    report: Callable[[int, int], None] = lambda _done, _of: None,
    converters: Mapping[str, str] = MappingProxyType({}),
) -> RestoreResult:
    """Writes the records of `named` to `topic` in the cluster of `worker`; goes on with a run that was cut off.

    If only the topic's folder is named, that is the snapshot with which it began. Each record goes to the partition
    that it has in the snapshot, with its key, value, headers and time. With `create` a topic that is not there is made.
    `report` is told how many records have gone, of how many. `converters` are settings of those that write a typed
    snapshot's keys and values, as a connector file has them; what they leave open its manifest says.

    Raises UsageError if the snapshot or the topic does not fit, or a record cannot be written. Raises ConflictError if
    the topic has other records, those of another snapshot among them, if the snapshot is being removed, or if a later
    run has fenced this one. Raises ConfigError, DamagedFileError, StorageError, RegistryError, UnreachableError,
    NotAllowedError.
    """
    if named.is_named:
        _check_columns(named, named.manifest(), converters)
    kafka = _Kafka.of(worker)
    with closing(Admin(kafka.admin)) as admin:
        created, info = _topic(admin, topic, named, create, converters)  # S1
        name = f"{_PREFIX}{topic}"
        with closing(groups.member(kafka.admin, name)) as member:
            settings = producers.settings(kafka.producer, name, producers.LARGEST_BATCH, _BYTES)
            sender = SendingProducer(settings, name, member, _words(topic))  # S2
            first = TopicPartition(topic, 0)
            held = groups.committed(member, kafka.admin, name, [first], _PENDING_S)[first]
            progress = _progress(held, info.id)
            snapshot = _under_way(progress, named, topic)
            before = done = held[0] if held is not None and progress is not None else 0
            said = None
            if progress is None or done < progress.records:
                said = snapshot.manifest()
                if not named.is_named:
                    _check_columns(snapshot, said, converters)
                _check_fits(admin, info, said)
                if progress is None:  # S3
                    _check_empty(admin, info)
                pin.hold(snapshot, info.id)
                begun = _Progress(info.id, snapshot.location, said.records, _settings(said, converters))
                _check_same(progress, begun, done)
                if progress != begun:  # nothing has gone
                    progress = begun
                    sender.send(_position(topic, 0, progress), [])
                with closing(_Rows(snapshot, said, topic, converters)) as rows:
                    for batch in _batches(rows, done):  # S4, S5
                        sender.send(_position(topic, done + len(batch), progress), batch)
                        done += len(batch)
                        report(done, said.records)
            pin.let_go(snapshot, info.id)  # S6
    return RestoreResult(
        snapshot=snapshot.location,
        topic=topic,
        created=created,
        records=progress.records,
        sent=done - before,
        before=before,
        without_headers=said is not None and said.typed is not UNSET and _HEADERS not in _names(said),
    )


def _check_columns(snapshot: SnapshotFolder, said: Manifest, converters: Mapping[str, str]) -> None:
    """Raises UsageError if the records cannot be made again from what the snapshot has of them, ConfigError."""
    if said.typed is not UNSET:
        _check_typed(snapshot, said, said.typed, converters)
    at = "timestamp" if said.typed is UNSET else "_timestamp"
    for file in said.files:
        try:
            with open_file(snapshot.files, file) as opened:
                timeless = _timeless(opened.metadata, at)
        except FoldError as error:
            raise DamagedFileError(error.message, _VERIFY) from error
        except MissingFileError as error:
            raise DamagedFileError(f"{snapshot.location}/{file.path} is missing.", _VERIFY) from error
        if timeless:
            raise UsageError(
                f"{snapshot.location}/{file.path} has {timeless:,} records with times that no snapshot can tell.",
                "Their times cannot be restored; resync publishes them from the source.",
            )


def _check_typed(snapshot: SnapshotFolder, said: Manifest, typed: Typed, converters: Mapping[str, str]) -> None:
    if missing := [name for name in _NEEDED if name not in _names(said)]:
        raise UsageError(
            f"Snapshot {snapshot.location} has no column {', '.join(missing)}, which a restore needs.",
            "Put them into snapshot.metadata.columns, take a snapshot, and restore that.",
        )
    for side, chosen in (("key", typed.key_format), ("value", typed.value_format)):
        if chosen == "typed" and side not in typed.converters and f"{side}.converter" not in converters:
            raise UsageError(
                f"Snapshot {snapshot.location} has typed {side}s, and an older keyfold took it: nothing says by which "
                "converter they are written.",
                "Give the connector whose snapshot it is, --connector CONNECTOR.json, or --with "
                f"{side}.converter=keyfold.Avro and its settings.",
            )
    stored_chain(typed.converters, converters)


def _names(said: Manifest) -> set[str]:
    return {column.name for column in said.schema}


def _settings(said: Manifest, converters: Mapping[str, str]) -> str:
    """Returns what differs between converters that write the records of a typed snapshot in other ways."""
    if said.typed is UNSET:
        return ""
    chain = stored_chain(said.typed.converters, converters)
    return " ".join(ValueTypes(side=side, chain=chain, resolve=resolve).settings for side in ("key", "value"))


def _check_same(progress: _Progress | None, begun: _Progress, done: int) -> None:
    """Raises ConflictError if records went that were written in another way than the next would be."""
    if done and progress is not None and progress.converters != begun.converters:
        raise ConflictError(
            f"{done:,} records of {progress.snapshot} were written by other converters, or other settings of them.",
            "Give those with which the restore began (--connector, --with), or name a new topic.",
        )


def _timeless(footer: pq.FileMetaData, name: str) -> int:
    """Counts the records without a time: with null in the column `name`."""
    paths = (footer.schema.column(number).path for number in range(len(footer.schema)))
    at = next(number for number, path in enumerate(paths) if path == name)
    columns = (footer.row_group(number).column(at) for number in range(footer.num_row_groups))
    return sum(column.statistics.null_count for column in columns if column.statistics is not None)


def _topic(
    admin: Admin,
    topic: str,
    named: SnapshotFolder,
    create: NewTopicSettings | None,
    converters: Mapping[str, str],
) -> tuple[bool, TopicInfo]:
    """Takes step S1: returns whether the topic was made, and what it is. Raises UsageError if it cannot be used."""
    if is_internal(topic):
        raise UsageError(f"{topic} is an internal topic; keyfold never writes to one.", "Name another topic.")
    created = False
    if topic not in admin.describe([topic]):
        said = named.manifest()
        needed = _needed(said)
        if create is None:
            raise UsageError(
                f"Topic {topic} does not exist.",
                f"Give --create to make it with {needed} partitions, or check its name.",
            )
        if not named.is_named:
            _check_columns(named, said, converters)
        config = {**_new_config(said), **create.config}
        created = bool(admin.create_topics([NewTopic(topic, needed, create.replication_factor, config=config)]))
    return created, output_topic.ready(admin, {topic: 1})[topic]


def _needed(said: Manifest) -> int:
    """Returns how many partitions a topic needs to take the snapshot's records."""
    return max(map(int, said.source_offsets), default=0) + 1


def _check_fits(admin: Admin, info: TopicInfo, said: Manifest) -> None:
    """Raises UsageError if the topic has too few partitions, or would replace the times of the records."""
    topic, needed = info.name, _needed(said)
    if info.partitions < needed:
        raise UsageError(
            f"Topic {topic} has {info.partitions} partitions, the snapshot has records of {needed}.",
            f"kafka-topics.sh --alter --topic {topic} --partitions {needed}, or name another topic.",
        )
    config = output_topic.settings_of(admin, [topic], output_topic.DEADLINE_S)[topic]
    if (kind := config.get("message.timestamp.type")) != "CreateTime":
        raise UsageError(
            f"Topic {topic} has message.timestamp.type={kind}: it would replace the times of the records.",
            f"kafka-configs.sh --alter --topic {topic} --add-config message.timestamp.type=CreateTime.",
        )


def _new_config(said: Manifest) -> dict[str, str]:
    """Returns the settings of a topic that is made: those of an output topic, by the policy of the snapshot."""
    named = ("cleanup.policy", "delete.retention.ms", "retention.ms", "retention.bytes")
    policy = {name: str(value) for name, value in said.policy.items() if name in named}
    largest = str(output_topic.KAFKAS_LARGEST + output_topic.HEADER_ROOM)
    fixed = {"message.timestamp.type": "CreateTime", "max.message.bytes": largest}
    return {**fixed, **output_topic.any_time(), **policy}


def _progress(held: groups.CommittedOffset | None, topic_id: str) -> _Progress | None:
    """Returns what the position says of the topic with this id; None if nothing was ever begun."""
    if held is None:
        return None
    try:
        progress = decoded_as(held[1], _Progress)
    except UNDECODABLE:
        return None
    return progress if progress.topic_id == topic_id else None


def _under_way(progress: _Progress | None, named: SnapshotFolder, topic: str) -> SnapshotFolder:
    """Returns the snapshot to restore: that of `progress` if there is one. Raises ConflictError if it is not meant."""
    if progress is None:
        return named
    begun = SnapshotFolder(named.topic, progress.id)
    if progress.snapshot != begun.location or (named.is_named and named.id != begun.id):
        raise ConflictError(
            f"A restore of {progress.snapshot} to topic {topic} was begun: {named.location} would mix with it.",
            f"Go on with it: keyfold restore {progress.snapshot} --topic {topic}. Or name a new topic.",
        )
    return begun


def _check_empty(admin: Admin, info: TopicInfo) -> None:
    """Raises ConflictError if the topic ever had a record: it may be one of an earlier restore."""
    places = [TopicPartition(info.name, number) for number in range(info.partitions)]
    if any(admin.high_watermarks(places).values()):
        raise ConflictError(
            f"Topic {info.name} has, or had, records, and no position of a restore is kept.",
            "Restore into a new topic: name another (--create makes it). Brokers forget how far a restore has come "
            "after offsets.retention.minutes; delete a topic for it only if it holds nothing but that restore.",
        )


def _position(topic: str, done: int, progress: _Progress) -> Partition:
    return Partition(topic, 0, done, msgspec.json.encode(progress).decode())


class _Rows:
    """The rows of a snapshot in their order, with the columns of a snapshot of bytes."""

    def __init__(self, snapshot: SnapshotFolder, said: Manifest, topic: str, converters: Mapping[str, str]) -> None:
        self.topic = topic
        self._snapshot = snapshot
        self._said = said
        self._converters = converters
        # What makes bytes of typed columns; made with the first file.
        self._writer: TypedRowWriter | None = None

    def batches(self, done: int) -> Iterator[pa.RecordBatch]:
        """Yields the rows from the one with the number `done` on."""
        for file in self._said.files:
            if done >= file.records:
                done -= file.records
                continue
            if sha256_of(self._snapshot.files, file.path, file.bytes) != file.sha256:
                place = f"{self._snapshot.location}/{file.path}"
                raise DamagedFileError(f"{place} is damaged: it is not what was written.", _VERIFY)
            for batch in read_file(self._snapshot.files, file, _RECORDS):
                if done < batch.num_rows:
                    yield self._plain(batch.slice(done))
                done = max(0, done - batch.num_rows)

    def close(self) -> None:
        """Closes the connections of converters."""
        if self._writer is not None:
            self._writer.close()

    def _plain(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        typed = self._said.typed
        if typed is UNSET:
            return batch
        if self._writer is None:
            appends = self._said.snapshot_mode == APPEND
            self._writer = TypedRowWriter(batch.schema, typed, self._converters, self.topic, appends=appends)
        return self._writer.records(batch)


def _batches(rows: _Rows, done: int) -> Iterator[list[SentRecord]]:
    """Yields the records from the one with the number `done` on, those of one transaction each."""
    records = (record for batch in rows.batches(done) for record in _made(batch, rows.topic))
    return pack(records, AtMost(_RECORDS, unit_weight), AtMost(_BYTES, lambda record: record.size))


def _made(batch: pa.RecordBatch, topic: str) -> Iterator[SentRecord]:
    """Makes the records of `batch`; time 0 goes as 1 with a header that says so, as on an output topic."""
    as_sent = pa.RecordBatch.from_arrays(
        [
            batch["key"].cast(pa.binary()),
            batch["value"].cast(pa.binary()),
            batch["timestamp"].cast(pa.timestamp("ms", "UTC")).cast(pa.int64()),
            batch["headers"].cast(HEADERS),
        ],
        ["key", "value", "timestamp", "headers"],
    )
    places = zip(batch["partition"].to_pylist(), batch["offset"].to_pylist(), strict=True)
    sent = rows(as_sent, original_headers(as_sent) or repeat([], batch.num_rows))
    for (partition, offset), (value, key, timestamp, headers) in zip(places, sent, strict=True):
        size = len(key or b"") + len(value or b"") + sum(len(name) + len(data or b"") for name, data in headers)
        name = f"The record {partition}/{'?' if offset is None else offset}"
        yield SentRecord(topic, partition, value, key, timestamp, headers, name, size)


def _words(topic: str) -> SendingWords:
    return SendingWords(
        doing="Records cannot be restored, up to the next position of {}",
        another="restore",
        look="Let it end; run this one again to see how far it came.",
        sent="restore.sent",
        offsets="restore.offsets",
        committed="restore.committed",
        logger="keyfold.restore-producer",
        write=f"Write on topic {topic}",
    )
