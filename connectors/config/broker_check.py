"""Whether a connector fits what the brokers have: source topics, output topics. Pure over a view of the brokers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Protocol

from connectors.config.connector import ConnectorConfig
from connectors.config.faults import Fault
from connectors.config.topics import missing, select
from connectors.sinks import output_topic


class BrokerView(Protocol):
    """What is asked of the brokers; connectors.kafka.admin.Admin answers it. Each call may raise UnreachableError."""

    def list_topics(self) -> Iterable[str]:
        """The names of all topics."""

    def topic_config(self, name: str) -> Mapping[str, str]:
        """The settings in force of the topic `name`."""


def broker_faults(config: ConnectorConfig, view: BrokerView) -> tuple[Fault, ...]:
    """What does not fit between a connector and the brokers; nothing is changed there.

    A named source topic must exist, and an output topic that exists must keep what keyfold sends it. Raises
    UnreachableError when the brokers do not answer.
    """
    existing = frozenset(view.list_topics())
    absent = [
        Fault("topics", f'"{name}" does not exist; create it, or correct the name.')
        for name in missing(config, existing)
    ]
    outputs = (config.output_topic(topic) for topic in select(config, existing))
    there = [output for output in outputs if output is not None and output in existing]
    return (*absent, *(fault for output in there for fault in _unfit(config, output, view.topic_config(output))))


def _unfit(config: ConnectorConfig, output: str, settings: Mapping[str, str]) -> Iterator[Fault]:
    for text in output_topic.faults(config, settings):
        yield Fault("output.topic", f'"{output}" exists: {text}.')
