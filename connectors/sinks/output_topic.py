"""Creates the topics that keyfold writes to with the settings that publishing needs, and checks existing ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import structlog
from confluent_kafka.admin import NewTopic
from msgspec import Struct

from compactor.model.record import TopicPartition
from connectors.config.connector import ConnectorConfig
from connectors.config.topics import is_internal
from connectors.errors import OutputError, UnreachableError
from connectors.kafka.admin import Admin, TopicInfo, chunks
from connectors.kafka.retry import call_again, poll_until

_log = structlog.get_logger()

FOREVER: Final = 9223372036854775807
HEADER_ROOM: Final = 4_096
"""Bytes that our headers may add to a record: three names, a topic name of 249, two numbers."""
KAFKAS_LARGEST: Final = 1_048_588
"""Kafka's default of max.message.bytes."""
# How long (s) a new topic may take until it has all leaders and every broker knows its settings; asked each _PAUSE_S.
DEADLINE_S: Final = 60.0
_PAUSE_S: Final = 0.1
_AT_ONCE: Final = 50
"""Topics that are made by one request: with hundreds of partitions a broker answers too late."""

Config = Mapping[str, str]


class WantedOutput(Struct, frozen=True):
    """The output topic `name` of the topic `source`, with as many `partitions` at least.

    `id` is the topic that the catalog knows to be this output; None if it knows none yet.
    """

    source: str
    name: str
    partitions: int
    id: str | None = None


def ensure(admin: Admin, connector: ConnectorConfig, wanted: Sequence[WantedOutput]) -> dict[str, str]:
    """Creates output topics, or adds partitions to them, if needed; returns the id of each by its name.

    Raises OutputError, with everything that has to be changed, if an existing topic cannot take what is
    published, is internal, or would have to grow and may be another's; UnreachableError if it has no leaders in time.
    """
    ids: dict[str, str] = {}
    for some in chunks(wanted, _AT_ONCE):
        ids |= _ensure(admin, connector, some)
    return ids


def _ensure(admin: Admin, connector: ConnectorConfig, wanted: Sequence[WantedOutput]) -> dict[str, str]:
    sources = admin.topic_configs(output.source for output in wanted)
    there = admin.describe(output.name for output in wanted)
    refuse_internal(connector, (output.name for output in wanted), there)
    missing = [output for output in wanted if output.name not in there]
    known = admin.topic_configs(there)
    for name, config in known.items():
        check(connector, name, config)
    made = admin.create_topics([_new(connector, output, sources[output.source]) for output in missing])
    for output in missing:
        if output.name in made:
            _log.info("output topic created", topic=output.name, partitions=output.partitions)
    infos = ready(admin, {output.name: 1 for output in wanted})
    small = [output for output in wanted if infos[output.name].partitions < output.partitions]
    _check_growth(admin, connector, small, infos)
    for output in small:
        admin.grow(output.name, output.partitions)
    infos |= ready(admin, {output.name: output.partitions for output in small})
    for output in small:
        _log.info("output topic grown", topic=output.name, partitions=output.partitions)
    configs = known | settings_of(admin, [output.name for output in missing], DEADLINE_S)
    for output in missing:
        check(connector, output.name, configs[output.name])
    for output in wanted:
        warn(connector, output.name, configs[output.name], sources[output.source])
    return {output.name: infos[output.name].id for output in wanted}


def refuse_internal(connector: ConnectorConfig, names: Iterable[str], there: Mapping[str, TopicInfo]) -> None:
    """Raises OutputError if one of `names` is an internal topic, by its name or by what the brokers say of it."""
    for name in names:
        if is_internal(name) or (name in there and there[name].internal):
            raise OutputError(
                f"Connector {connector.name}: {name} is an internal topic; keyfold never writes to one.",
                "Name another topic in output.topic, or in errors.deadletterqueue.topic.name.",
            )


def _check_growth(
    admin: Admin, connector: ConnectorConfig, small: Iterable[WantedOutput], infos: Mapping[str, TopicInfo]
) -> None:
    """Raises OutputError for a topic that would grow, if the catalog does not know it and it ever had a record.

    Then it may be another's: with more partitions, what writes there by key writes to others than before.
    """
    strange = [output for output in small if output.id != infos[output.name].id]
    places = [TopicPartition(each.name, n) for each in strange for n in range(infos[each.name].partitions)]
    used = {place.topic for place, end in admin.high_watermarks(places).items() if end} if places else set()
    for output in strange:
        if output.name in used:
            raise OutputError(
                f"Connector {connector.name}: output topic {output.name} has {infos[output.name].partitions} "
                f"partitions, its source {output.source} has {output.partitions}. It holds records, and the "
                "connector did not make it, so keyfold adds none.",
                f"If it is this connector's own: kafka-topics.sh --alter --topic {output.name} --partitions "
                f"{output.partitions}. Otherwise name another output.topic.",
            )


def ensure_dead_letters(admin: Admin, connector: ConnectorConfig) -> None:
    """Creates the dead letter topic with one partition, as Kafka Connect does; an existing one is taken as it is.

    Its records age from when they are sent there: by their own times the broker could remove them within minutes.
    """
    name = connector.dead_letter_topic
    if name is None:
        return
    there = admin.describe([name])
    refuse_internal(connector, [name], there)
    if name in there:
        return
    config = {"message.timestamp.type": "LogAppendTime", "max.message.bytes": str(KAFKAS_LARGEST * 2)}
    if admin.create_topics([NewTopic(name, 1, connector.dead_letter_replication_factor, config=config)]):
        _log.info("dead letter topic created", topic=name)
    ready(admin, {name: 1})


def dead_letter_warning(config: Config) -> str | None:
    """Returns why records of a dead letter topic with these settings may be gone before they are read, else None."""
    retention = config.get("retention.ms", "604800000")
    by_own_time = config.get("message.timestamp.type", "CreateTime") == "CreateTime"
    if not by_own_time or "delete" not in config.get("cleanup.policy", "delete") or int(retention) < 0:
        return None
    return (
        f"message.timestamp.type is CreateTime and retention.ms is {retention}: a record whose source time is older "
        "goes as soon as the broker looks; set message.timestamp.type=LogAppendTime there, or retention.ms=-1"
    )


def new_config(connector: ConnectorConfig, source: Config) -> dict[str, str]:
    """Returns the settings of a new output topic; output.topic.config.* wins.

    The minimum compaction lag is not set again: what is published has waited for it already.
    """
    kept = {"retention.ms": str(connector.retention_ms), "retention.bytes": str(connector.retention_bytes)}
    largest = max(int(source.get("max.message.bytes", KAFKAS_LARGEST)), KAFKAS_LARGEST) + HEADER_ROOM
    return {
        "cleanup.policy": ",".join(sorted(connector.cleanup_policy)),
        "delete.retention.ms": str(connector.delete_retention_ms),
        **(kept if "delete" in connector.cleanup_policy else {}),
        "message.timestamp.type": "CreateTime",
        **any_time(),
        "max.message.bytes": str(largest),
        **connector.output_topic_config,
    }


def any_time() -> dict[str, str]:
    """Returns the settings that let records keep their source's times, however far these are from now (KIP-937)."""
    return {f"message.timestamp.{side}.max.ms": str(FOREVER) for side in ("before", "after")}


def faults(connector: ConnectorConfig, config: Config) -> list[str]:
    """Returns what in the settings of an existing output topic breaks a promise, each with what it has to be."""
    policy = set(config.get("cleanup.policy", "delete").split(","))
    wrong = []
    if "compact" in connector.cleanup_policy and "compact" not in policy:
        wrong.append(f"cleanup.policy is {config.get('cleanup.policy')}, it has to contain compact")
    if "delete" in policy and "delete" not in connector.cleanup_policy and _expires(config):
        wrong.append("cleanup.policy contains delete, which the connector's does not: keys would expire")
    if config.get("message.timestamp.type") != "CreateTime":
        wrong.append(f"message.timestamp.type is {config.get('message.timestamp.type')}, it has to be CreateTime")
    return wrong


def _expires(config: Config) -> bool:
    """Returns whether a topic with cleanup.policy=delete ever deletes: with no limit of time and size it does not."""
    return (config.get("retention.ms"), config.get("retention.bytes")) != ("-1", "-1")


def warnings(connector: ConnectorConfig, config: Config, source: Config) -> list[str]:
    """Returns what in the settings of an existing output topic may make it refuse records, or keep them for longer."""
    reasons = []
    if "delete" in connector.cleanup_policy and "delete" not in config.get("cleanup.policy", "delete"):
        reasons.append("cleanup.policy has no delete, as the connector's has: what expires in the log stays there")
    largest = int(config.get("max.message.bytes", KAFKAS_LARGEST))
    needed = int(source.get("max.message.bytes", KAFKAS_LARGEST)) + HEADER_ROOM
    if largest < needed:
        reasons.append(f"max.message.bytes is {largest}, records of the source with our headers may need {needed}")
    bounded = [name for name in any_time() if int(config.get(name, FOREVER)) < FOREVER]
    return reasons + [f"{name} is {config[name]}, records with other times are refused" for name in bounded]


def resume_safe_ms(config: Config) -> int | None:
    """Returns how long (ms) a reader may stay away from a topic with these settings without missing a record.

    delete.retention.ms if it compacts; None is for ever. 0 if it deletes, by time or by size: a segment may go
    as soon as it is full, since size has no time, and retention.ms goes by the records' times, which are the source's.
    """
    policy = config.get("cleanup.policy", "delete").split(",")
    if "delete" in policy and _expires(config):
        return 0
    return int(config.get("delete.retention.ms", 86_400_000)) if "compact" in policy else None


def check(connector: ConnectorConfig, name: str, config: Config) -> None:
    """Raises OutputError with all faults if the settings `config` of output topic `name` break a promise."""
    wrong = faults(connector, config)
    if wrong:
        raise OutputError(
            f"Connector {connector.name}: output topic {name} cannot take what is published: {'; '.join(wrong)}.",
            "Change it with kafka-configs.sh --alter and start the connector again; for a connector that has not "
            "published yet another output.topic will do as well.",
        )


def warn(connector: ConnectorConfig, name: str, config: Config, source: Config) -> None:
    """Logs what may make the output topic refuse single records, or keep them for longer."""
    for text in warnings(connector, config, source):
        _log.warning("output topic does not fit in all", connector=connector.name, topic=name, reason=text)


def _new(connector: ConnectorConfig, output: WantedOutput, source: Config) -> NewTopic:
    replication = connector.output_topic_replication_factor
    return NewTopic(output.name, output.partitions, replication, config=new_config(connector, source))


def settings_of(admin: Admin, names: Sequence[str], deadline_s: float) -> dict[str, dict[str, str]]:
    """Returns the settings of topics, asked for again for `deadline_s`: some broker may not know a new topic yet."""
    return call_again(
        lambda: admin.topic_configs(names), lambda error: isinstance(error, UnreachableError), deadline_s, _PAUSE_S
    )


def ready(admin: Admin, partitions: Mapping[str, int]) -> dict[str, TopicInfo]:
    """Returns the topics once each has as many partitions as are named, and every one of them a leader."""
    ready: dict[str, TopicInfo] = {}

    def waiting() -> list[str]:
        now = admin.describe(partitions.keys() - ready.keys())
        ready.update(
            {name: info for name, info in now.items() if info.partitions >= partitions[name] and not info.leaderless}
        )
        return sorted(partitions.keys() - ready.keys())

    left = poll_until(lambda names: not names, waiting, DEADLINE_S, _PAUSE_S)
    if left:
        more = f" (and {len(left) - 1} more topics)" if len(left) > 1 else ""
        raise UnreachableError(
            f"Topic {left[0]}{more} has no leader for each of {partitions[left[0]]} partitions after "
            f"{DEADLINE_S:.0f} s.",
            "Check that all brokers are up.",
        )
    return ready
