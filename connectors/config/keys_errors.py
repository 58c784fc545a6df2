"""Keys of the connector file: what happens when something is wrong."""

from __future__ import annotations

from typing import Final

from connectors.config import kinds
from connectors.config.key import Key, group
from connectors.config.kinds import FLAG, minus_one_or, one_of, whole

ERRORS: Final = group(
    "Errors",
    Key(
        "errors.tolerance",
        one_of("none", "all"),
        "none",
        "A record that cannot be taken (it has no key, or the broker refuses it): `none` makes the "
        "connector FAILED, `all` counts it and lets it go.",
    ),
    Key(
        "errors.retry.timeout",
        minus_one_or(0, "for ever"),
        "0",
        "How long what the brokers did not answer is tried again while the connector runs: questions about topics and "
        "positions, transactions that were not committed. The first wait is 300 ms, each next one twice as long. After "
        "that, and at once with 0, the connector is started again (`restart.backoff.*`).",
        "ms",
    ),
    Key(
        "errors.retry.delay.max.ms",
        whole(1),
        "60000",
        "Longest wait between two such tries.",
        "ms",
    ),
    Key(
        "errors.deadletterqueue.topic.name",
        kinds.TOPIC,
        None,
        "Topic to which records go that `errors.tolerance=all` lets go. Not set: they are only counted. "
        "If keyfold makes it, it has `message.timestamp.type=LogAppendTime`, so that letters age from their arrival.",
    ),
    Key(
        "errors.deadletterqueue.topic.replication.factor",
        minus_one_or(1, "the broker's default", 32767),
        "3",
        "Replication factor of a dead letter topic that keyfold creates (with 1 partition).",
    ),
    Key(
        "errors.deadletterqueue.context.headers.enable",
        FLAG,
        "false",
        "Add Connect's `__connect.errors.*` headers to dead letters.",
    ),
    Key(
        "restart.backoff.initial.ms",
        whole(1),
        "1000",
        "First wait before a connector that failed is started again; it doubles each time, and begins anew once the "
        "connector has worked: taken a micro-batch in and published it, or had nothing to do for 10 s. Brokers or a "
        "store that did not answer are asked every 2 s meanwhile, and end the wait when they do.",
        "ms",
    ),
    Key(
        "restart.backoff.max.ms",
        whole(1),
        "300000",
        "Longest such wait.",
        "ms",
    ),
)
