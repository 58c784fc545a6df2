"""Output topics that two connectors would share: each would publish into the other's changelog. Pure."""

from __future__ import annotations

from connectors.config.connector import ConnectorConfig
from connectors.config.errors import Fault
from connectors.config.topics import matches


def shared(one: ConnectorConfig, other: ConnectorConfig) -> str | None:
    """An output topic that both publish to, as a name or a template; None where nothing says that there is one.

    Of two patterns only equal ones are known to match the same topics; what they come to share is found when it is
    published (`connectors.sinks.output_reader`).
    """
    if not one.publishes or not other.publishes:
        return None
    return _named(one, other) or _named(other, one) or _both_patterns(one, other)


def output_faults(one: ConnectorConfig, other: ConnectorConfig, where: object) -> tuple[Fault, ...]:
    """The fault of `one` where it would share an output topic with `other`, which stands in the file `where`."""
    name = shared(one, other)
    if name is None:
        return ()
    text = f'"{name}" is also the output topic of connector "{other.name}" in {where}; each needs one of its own.'
    return (Fault("output.topic", text),)


def _named(one: ConnectorConfig, other: ConnectorConfig) -> str | None:
    """An output of the topics that `one` names, where `other` reads the same topic, or names one with that output."""
    theirs = {other.output_topic(topic) for topic in other.topics or ()}
    for topic in one.topics or ():
        name = one.output_topic(topic)
        if name in theirs or (matches(other, topic) and other.output_topic(topic) == name):
            return name
    return None


def _both_patterns(one: ConnectorConfig, other: ConnectorConfig) -> str | None:
    same = one.topics_regex is not None and (one.topics_regex, one.output_topic_template) == (
        other.topics_regex,
        other.output_topic_template,
    )
    return one.output_topic_template if same else None
