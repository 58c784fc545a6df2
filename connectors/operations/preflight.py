"""Checks whether a connector fits the brokers' source and output topics. It changes nothing there."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from connectors.config.connector import ConnectorConfig
from connectors.config.errors import Fault
from connectors.config.topics import missing, select
from connectors.kafka.admin import Admin
from connectors.sinks import output_topic


def broker_faults(config: ConnectorConfig, brokers: Admin) -> tuple[Fault, ...]:
    """Lists what does not fit between a connector and the brokers; changes nothing there.

    A named source topic must exist, an output topic that exists must keep what keyfold sends it, and there must be
    brokers for the replicas of topics that keyfold will create. Raises UnreachableError when none answers.
    """
    existing = frozenset(brokers.list_topics())
    absent = [
        Fault("topics", f'"{name}" does not exist; create it, or correct the name.')
        for name in missing(config, existing)
    ]
    outputs = [output for topic in select(config, existing) if (output := config.output_topic(topic)) is not None]
    there = [output for output in outputs if output in existing]
    unfit = (
        Fault("output.topic", f'"{output}" exists: {text}.')
        for output in there
        for text in output_topic.faults(config, brokers.topic_config(output))
    )
    return (*absent, *unfit, *_too_few(config, existing, outputs, brokers))


def _too_few(
    config: ConnectorConfig, existing: Collection[str], outputs: Iterable[str], brokers: Admin
) -> Iterator[Fault]:
    """Yields a fault for each topic to be created with more replicas than brokers; -1 is the brokers' default."""
    new: dict[str, tuple[int, str]] = {}
    for output in outputs:
        if output not in existing:
            new.setdefault("output.topic", (config.output_topic_replication_factor, output))
    if config.dead_letter_topic and config.dead_letter_topic not in existing:
        new["errors.deadletterqueue.topic"] = (config.dead_letter_replication_factor, config.dead_letter_topic)
    count = brokers.brokers() if new else 0
    there = "there is 1 broker" if count == 1 else f"there are {count} brokers"
    for key, (replicas, topic) in new.items():
        if replicas > count:
            text = f'is {replicas}, but {there}; lower it, or create "{topic}" yourself.'
            yield Fault(f"{key}.replication.factor", text)
