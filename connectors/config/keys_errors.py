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
        "How long the work on one record is tried again; 0 does not try again.",
        "ms",
    ),
    Key(
        "errors.retry.delay.max.ms",
        whole(1),
        "60000",
        "Longest wait between two tries on one record.",
        "ms",
    ),
    Key(
        "errors.deadletterqueue.topic.name",
        kinds.TOPIC,
        None,
        "Topic to which records go that `errors.tolerance=all` lets go. Not set: they are only counted.",
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
        "First wait before the connector is started again after an outage of broker or store; it doubles each time.",
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
