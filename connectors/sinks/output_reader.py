"""Reads output partitions back: keyfold's last record, and records of other writers.

The last one shows how far a lost position had come. Other writers are found before the next transaction adds to their
records: a position of ours holds the output offset up to which everything of ours lies (`Position.output_offset`); with
the position in the same transaction as the records, no committed record of ours can be above it. Offsets alone prove
nothing, as markers and aborted records take some too, any number of them: so the records there are read, and a
read_committed reader sees none of those.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from typing import Final

import structlog
from confluent_kafka import Consumer, KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as Partition

from compactor.digits import whole
from compactor.errors import OLDER_COPY, PositionError
from compactor.model.log import Generation
from compactor.model.position import Tail, Unknown
from compactor.model.publish_plan import PublishTarget
from compactor.model.record import TopicPartition
from connectors.clock import Deadline
from connectors.errors import CHECK_BROKERS, OutputError, UnreachableError
from connectors.kafka.admin import Admin
from connectors.kafka.broker_text import broker_text
from connectors.kafka.client_log import logged
from connectors.kafka.client_settings import Setting
from connectors.kafka.consumers import every_latest_offset, headers_of
from connectors.kafka.errors import cause, is_settling, reading, typed
from connectors.kafka.retry import call_again
from connectors.sinks.encode import GENERATION, IDENTITY, OFFSET, PARTITION, SYNTHETIC, TOPIC

# Offsets that the first look back from the end reads: the last record is mostly there, before a marker or two. Each
# next look reads GROWTH times as many, so that an end without a record of ours takes few consumers.
FIRST_STEP: Final = 256
GROWTH: Final = 8
# How long (s) a broker may be silent while a range is read; it counts from the last progress.
DEADLINE_S: Final = 60.0
# How long (s) the leader of a new topic may not know it, and the pause (s) between two questions.
SETTLED_S: Final = 20.0
PAUSE_S: Final = 0.1
# How long (s) the consumer is waited for before an admin client asks, which says what is wrong.
_ENDS_S: Final = 2.0
_MOST_GENERATIONS: Final = 999_999_999
"""The greatest number of a generation; of a header with a greater one keyfold is not the writer."""
_MARKER: Final = 1
"""The offsets that one transaction of ours takes after its records."""
_log = structlog.get_logger()
Headers = Sequence[tuple[str, object]]
_PINNED: Final[dict[str, Setting]] = {
    "isolation.level": "read_committed",
    "enable.auto.commit": False,
    "auto.offset.reset": "earliest",
    "allow.auto.create.topics": False,
}


def last_source_offset(
    config: Mapping[str, Setting],
    output: str,
    tp: TopicPartition,
    generation: Generation | None = None,
    place: tuple[int, int] | None = None,
) -> Tail:
    """Returns `keyfold.source.offset` of the last record of `tp` that a read_committed reader finds in `output`.

    Goes back from the end in growing steps, as markers, compacted offsets and records of other writers may stand there;
    None if there is no record at all, Unknown if none has our headers. Of a later `generation` it reads only the part
    that holds that one, and takes no record of an earlier one; its tombstones without a source record count as no
    record. Raises UnreachableError; PositionError if the output holds a later generation.

    `place`: another output partition that may have records of `tp`, and the offset from which it has those of the
    generation (compaction.scope=topic). It has records of the topic's other partitions, which say nothing.
    """
    number, start = place or (tp.partition, start_of(generation))
    reader = OutputPartitionReader(config, Partition(output, number))
    with reading(config, f"The end of output partition {output}-{number}", output):
        low, end = reader.bounds()
        return _search(
            reader, tp, max(low, start), end, generation.number if generation else 1, is_shared=place is not None
        )


def start_of(generation: Generation | None) -> int:
    """Returns the offset of its output partition from which on records of `generation` are there."""
    return (generation.output_offset or 0) if generation else 0


def holds_records(
    config: Mapping[str, Setting], output: str, partition: int, generation: Generation | None = None
) -> bool:
    """Returns whether an output partition has any committed record of the generation, or of a later one.

    Raises as `last_source_offset`.
    """
    reader = OutputPartitionReader(config, Partition(output, partition))
    with reading(config, f"Output partition {output}-{partition}", output):
        low, end = reader.bounds()
        return any(True for _ in reader.read(max(low, start_of(generation)), end))


def _search(
    reader: OutputPartitionReader, tp: TopicPartition, low: int, end: int, generation: int, *, is_shared: bool = False
) -> Tail:
    step, stop = FIRST_STEP, end
    seen = False
    while stop > low:
        start = max(low, end - step)
        headers = [header_pairs(message) for message in reader.read(start, stop)]
        numbers = [named_generation(pairs) if _names(pairs, tp) else generation for pairs in headers]
        if max(numbers, default=0) > generation:
            raise _later_generation(f"{reader.target.topic}-{tp.partition}", max(numbers), generation)
        own = (pairs for pairs, number in zip(headers, numbers, strict=True) if number == generation)
        named = (pairs for pairs in own if not (is_shared and _names_other(pairs, tp)))
        offsets = [source_offset(pairs, tp) for pairs in named if not is_synthetic(pairs)]
        last = max((offset for offset in offsets if offset is not None), default=None)
        if last is not None:
            return last
        seen = seen or bool(offsets)
        step, stop = step * GROWTH, start
    return Unknown.UNKNOWN if seen else None


def _later_generation(output: str, newest: int, known: int) -> PositionError:
    return PositionError(
        f"{output} holds records of generation {newest}, the catalog knows generation {known}: it is an older copy.",
        OLDER_COPY,
    )


class OutputPartitionReader:
    """Reads ranges of one partition, each with a consumer of its own.

    A consumer that is assigned again may still take up messages of its old assignment: they are dropped, but
    its position jumps to theirs, and a range would seem to be read.
    """

    def __init__(
        self,
        config: Mapping[str, Setting],
        target: Partition,
        settled_s: float = SETTLED_S,
        left_s: Callable[[], float] = lambda: DEADLINE_S,
    ) -> None:
        """Reads `target`; `left_s` tells how long may still be waited, and raises what ends the reading."""
        self._config = {"group.id": "keyfold-tail", "log_level": 2, **config, **_PINNED}
        self._settled_s = settled_s
        self._left_s = left_s
        self.target = target

    def bounds(self) -> tuple[int, int]:
        """Returns log start and last stable offset; asks again while the leader of a new topic does not know it."""
        with closing(Consumer(logged(self._config))) as consumer:
            low, end = call_again(
                lambda: consumer.get_watermark_offsets(self.target, min(DEADLINE_S, self._left_s())),
                is_settling,
                self._settled_s,
                PAUSE_S,
            )
            return int(low), int(end)

    def read(self, start: int, stop: int) -> Iterator[Message]:
        """Yields the committed records of [start, stop); finished by position, which passes markers."""
        if start >= stop:  # a consumer has no position before something was delivered, nor if nothing ever is
            return
        deadline, reached = Deadline(DEADLINE_S), start
        with closing(Consumer(logged(self._config))) as consumer:
            consumer.assign([Partition(self.target.topic, self.target.partition, start)])
            while (position := consumer.position([self.target])[0].offset) < stop:
                if position > reached:  # a large output may take its time, a silent broker may not
                    deadline, reached = Deadline(DEADLINE_S), position
                self._left_s()
                yield from (message for message in _consumed(consumer) if (message.offset() or 0) < stop)
                if deadline.has_passed:
                    raise UnreachableError(
                        f"The end of output partition {self.target.topic}-{self.target.partition} was not read on "
                        f"for {DEADLINE_S:.0f} s.",
                        CHECK_BROKERS,
                    )


def _consumed(consumer: Consumer) -> list[Message]:
    messages = consumer.consume(10_000, 0.05)
    for message in messages:
        error = message.error()
        if error is not None:
            raise KafkaException(error)
    return messages


def header_pairs(message: Message) -> Headers:
    """Returns a message's headers, to be called once per message; none if a name is not UTF-8."""
    return headers_of(message)[0]


def source_offset(pairs: Iterable[tuple[str, object]], tp: TopicPartition) -> int | None:
    """Returns the offset in `tp` that a record's headers name; None if they are not ours for `tp`.

    Ours are the last of their names: keyfold takes an upstream keyfold's out, but others may write here too.
    """
    headers = {name: value for name, value in pairs if isinstance(value, bytes)}
    if (headers.get(TOPIC), headers.get(PARTITION)) != (tp.topic.encode(), str(tp.partition).encode()):
        return None
    return whole(headers.get(OFFSET, b""))


def named_generation(pairs: Headers) -> int:
    """Returns the generation that a record's headers name; 1 if they name none."""
    text = dict(pairs).get(GENERATION)
    return (whole(text, _MOST_GENERATIONS) if isinstance(text, bytes) else None) or 1


def _names(pairs: Headers, tp: TopicPartition) -> bool:
    """Returns whether a record's headers are ours for `tp`."""
    headers = dict(pairs)
    return (headers.get(TOPIC), headers.get(PARTITION)) == (tp.topic.encode(), str(tp.partition).encode())


def _names_other(pairs: Headers, tp: TopicPartition) -> bool:
    """Returns whether a record's headers are ours for another partition of the topic of `tp`."""
    headers = dict(pairs)
    return headers.get(TOPIC) == tp.topic.encode() and headers.get(PARTITION) != str(tp.partition).encode()


def retires(pairs: Headers, tp: TopicPartition) -> bool:
    """Returns whether a record with these headers is a tombstone of `tp` for another encoding of a key."""
    return _names(pairs, tp) and dict(pairs).get(SYNTHETIC) == IDENTITY


def is_synthetic(pairs: Iterable[tuple[str, object]]) -> bool:
    """Returns whether a record with these headers is a tombstone that comes from no source record."""
    return any(name == SYNTHETIC for name, _ in pairs)


def check_writers(
    where: str, admin: Admin, member: Consumer, config: Mapping[str, Setting], targets: Iterable[PublishTarget]
) -> None:
    """Looks for records of other writers in the output partitions of `targets`; `config` is a client's.

    `member` is a read_committed consumer that is only asked. Raises OutputError if another connector of keyfold
    publishes there too, UnreachableError. Other records are only logged as a warning: they may be an operator's mistake
    that is over.
    """
    planned = {target.tp: target for target in targets}
    places = {
        TopicPartition(target.output, target.partition): target
        for target in planned.values()
        if target.output is not None and target.has_place
    }
    ends = stable_ends(member, admin, places)
    for place, target in places.items():
        reached = target.output_offset
        if ends[place] > (0 if reached is None else reached + _MARKER):
            _check_partition(where, config, place, target, planned)


def stable_ends(member: Consumer, admin: Admin, places: Collection[TopicPartition]) -> dict[TopicPartition, int]:
    """Returns the last stable offset of each of `places`, beyond which nothing is read anyway.

    `member` is a read_committed consumer; if it has no answer, `admin` asks again and says what is wrong.
    """
    return every_latest_offset(member, places, _ENDS_S, admin.ends)


def _check_partition(
    where: str,
    config: Mapping[str, Setting],
    place: TopicPartition,
    target: PublishTarget,
    planned: Mapping[TopicPartition, PublishTarget],
) -> None:
    strays: list[int] = []
    try:
        reader = OutputPartitionReader(config, Partition(place.topic, place.partition))
        low, end = reader.bounds()
        for message in reader.read(max(low, target.output_offset or 0), end):
            headers = header_pairs(message)
            source = keyfold_source(headers)
            own = (
                target if source is None or target.outputs is None else planned.get(TopicPartition(*source[:2]), target)
            )
            if source is not None and not is_ours(source, own):
                raise _shared(where, place, message.offset() or 0, source)
            if source is None and not is_synthetic(headers):
                strays.append(message.offset() or 0)
    except KafkaException as error:
        _unread(where, config, place, cause(error))
    if strays:
        _log.warning(
            "output has records of another writer",
            topic=place.topic,
            partition=place.partition,
            records=len(strays),
            first_offset=strays[0],
            last_offset=strays[-1],
        )


def keyfold_source(headers: Headers) -> tuple[str, int, int] | None:
    """Returns topic, partition and offset that keyfold's headers name; None if they are not there."""
    named = {name: value for name, value in headers if isinstance(value, bytes)}
    topic = named.get(TOPIC)
    partition, offset = whole(named.get(PARTITION, b"")), whole(named.get(OFFSET, b""))
    if topic is None or partition is None or offset is None:
        return None
    return topic.decode(errors="replace"), partition, offset


def is_ours(source: tuple[str, int, int], target: PublishTarget) -> bool:
    """Returns whether a record above the output offset that is held may be this connector's.

    It may if a lost position was found again in the output: what lies below its start was sent already.
    """
    return source[:2] == (target.topic, target.partition) and source[2] < target.start


def _shared(where: str, place: TopicPartition, offset: int, source: tuple[str, int, int]) -> OutputError:
    topic, partition, at = source
    return OutputError(
        f"{where}: another connector publishes to {place} too: its record at offset {offset} is that of "
        f"{topic}-{partition} at offset {at}.",
        "Stop one of the two and give each an output.topic of its own. The output holds the records of both: go on "
        "under a new connector name with a new output topic.",
    )


def _unread(where: str, config: Mapping[str, Setting], place: TopicPartition, error: KafkaError) -> None:
    """Raises the typed `error`; logs a missing right instead, as publishing needs no right to read the output."""
    if error.code() != KafkaError.TOPIC_AUTHORIZATION_FAILED:
        raise typed(error, f"{where}: {place} cannot be read", str(config.get("bootstrap.servers")))
    _log.warning(
        "output may not be read, other writers are not looked for", topic=place.topic, reason=broker_text(error)
    )
