"""Records in our output that somebody else wrote: found before the next transaction adds to them.

A position of ours holds the output offset up to which everything of ours lies (`Position.output_offset`); with the
position in the same transaction as the records, no committed record of ours can be above it. Offsets alone prove
nothing, as markers and aborted records take some too, any number of them: so the records there are read, and a
read_committed reader sees none of those.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import structlog
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import TopicPartition as Partition

from compactor.model.publish_plan import PublishTarget
from compactor.model.record import TopicPartition
from connectors.errors import OutputError
from connectors.kafka.admin import Admin
from connectors.kafka.consumers import Setting
from connectors.kafka.errors import cause, typed
from connectors.sinks.encode import OFFSET, PARTITION, TOPIC
from connectors.sinks.output_reader import Reader, header_pairs

_log = structlog.get_logger()

_MARKER: Final = 1
"""What one transaction of ours leaves behind its records."""
Headers = Sequence[tuple[str, object]]


def check(where: str, admin: Admin, config: Mapping[str, Setting], targets: Iterable[PublishTarget]) -> None:
    """Looks for such records in the output partitions of `targets`; `config` is a client's.

    Raises OutputError where another connector of keyfold publishes there too; anybody else's records are warned of, as
    they may be an operator's mistake that is over. Raises UnreachableError.
    """
    places = {TopicPartition(one.output, one.partition): one for one in targets if one.output is not None}
    marks = admin.high_watermarks(places)
    for place, target in places.items():
        reached = target.output_offset
        if marks[place] > (0 if reached is None else reached + _MARKER):
            _look(where, config, place, target)


def _look(where: str, config: Mapping[str, Setting], place: TopicPartition, target: PublishTarget) -> None:
    strays: list[int] = []
    try:
        reader = Reader(config, Partition(place.topic, place.partition))
        low, end = reader.bounds()
        for message in reader.read(max(low, target.output_offset or 0), end):
            headers = header_pairs(message)
            source = connectors_source(headers)
            if source is not None and not is_ours(source, target):
                raise _shared(where, place, message.offset() or 0, source)
            if source is None:
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


def connectors_source(headers: Headers) -> tuple[str, int, int] | None:
    """Topic, partition and offset that keyfold's headers name; None where they are not there."""
    found = {name: value for name, value in headers if isinstance(value, bytes)}
    topic, partition, offset = (found.get(name) for name in (TOPIC, PARTITION, OFFSET))
    if topic is None or partition is None or offset is None or not (partition.isdigit() and offset.isdigit()):
        return None
    return topic.decode(errors="replace"), int(partition), int(offset)


def is_ours(source: tuple[str, int, int], target: PublishTarget) -> bool:
    """Whether a record above the output offset that is held may be this connector's.

    It may where a lost position was found again in the output: what lies below its start was sent already.
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
    """Publishing itself needs no right to read the output: without it, others are not looked for."""
    if error.code() != KafkaError.TOPIC_AUTHORIZATION_FAILED:
        raise typed(error, f"{where}: {place} cannot be read", str(config.get("bootstrap.servers")))
    _log.warning("output may not be read, other writers are not looked for", topic=place.topic, reason=error.str())
