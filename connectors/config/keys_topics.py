"""Keys of the connector file: what it reads and writes, and how fast."""

from __future__ import annotations

from typing import Final

from connectors.config import kinds
from connectors.config.key import CONNECTOR_CLASS, Key, Prefix, group
from connectors.config.kinds import FLAG, INT_MAX, fixed, minus_one_or, one_of, whole

WHAT: Final = group(
    "The connector and its topics",
    Key(
        "name",
        kinds.CONNECTOR_NAME,
        None,
        "The connector's name. It is also the name of its folder, of its consumer group "
        "(`connect-<name>`) and the beginning of its transactional ids. Renaming a connector makes a new "
        "one.",
        required=True,
    ),
    Key(
        "connector.class",
        fixed(CONNECTOR_CLASS, "CompactedTopic"),
        None,
        "What the connector is; there is one class.",
        required=True,
    ),
    Key(
        "topics",
        kinds.TOPICS,
        None,
        "The source topics. Either this or `topics.regex`.",
    ),
    Key(
        "topics.regex",
        kinds.PATTERN,
        None,
        "Source topics by pattern: a Java regular expression that must match the whole name. New topics "
        "join while the connector runs. keyfold's own output and dead letter topics and topics that begin"
        " with `__` never match.",
    ),
    Key(
        "tasks.max",
        whole(1, INT_MAX),
        None,
        "Upper bound of reading and of publishing tasks at a time. Not set: the number of Spark's cores.",
    ),
)

OUTPUT: Final = group(
    "The output topic",
    Key(
        "output.topic",
        kinds.TEMPLATE,
        "${topic}.compacted",
        "Where the compacted changelog goes; `${topic}` stands for the source topic's name. A fixed name "
        "is allowed for a single source topic. `none` publishes nothing: only snapshots are made.",
    ),
    Key(
        "output.topic.replication.factor",
        minus_one_or(1, "the broker's default", 32767),
        "-1",
        "Replication factor of an output topic that keyfold creates.",
    ),
    Key(
        "output.source.headers.enable",
        FLAG,
        "true",
        "Add `keyfold.source.topic`, `keyfold.source.partition` and `keyfold.source.offset` to each "
        "record on the output.",
    ),
)

PACE: Final = group(
    "Pace, and what to do when the source has lost records",
    Key(
        "max.offsets.per.trigger",
        whole(1, also=("unlimited",)),
        "unlimited",
        "Upper bound of offsets that one micro-batch takes, over all topics of the connector.",
        "offsets",
    ),
    Key(
        "trigger.interval.ms",
        whole(0),
        "0",
        "Shortest time between the beginnings of two micro-batches.",
        "ms",
    ),
    Key(
        "publish.local.max.records",
        minus_one_or(0, "everything is published by Spark's tasks"),
        "100000",
        "A publish of up to so many records (and 64 MiB) is folded and sent by the worker's own process, without a "
        "Spark job; a larger one by Spark's tasks.",
        "records",
    ),
    Key(
        "on.data.loss",
        one_of("fail", "skip"),
        "fail",
        "When records are gone from the source before they were read: `fail` sets the topic aside, or makes the "
        "connector FAILED where it has no other topic; `skip` counts them and goes on behind them.",
    ),
)

CONNECTOR_PREFIXES: Final = (
    Prefix(
        "output.topic.config.",
        "A topic setting for output topics that keyfold creates, under Kafka's name: "
        "`output.topic.config.min.insync.replicas`.",
    ),
    Prefix(
        "consumer.override.",
        "A setting of this connector's consumers, under Java's or librdkafka's name; wins over the "
        "worker's `consumer.`.",
    ),
    Prefix(
        "producer.override.",
        "The same for its producers.",
    ),
    Prefix(
        "admin.override.",
        "The same for its admin clients.",
    ),
)
