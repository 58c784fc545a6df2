"""Which topics a connector reads: pure."""

from __future__ import annotations

from collections.abc import Iterable

from connectors.config.connector import ConnectorConfig
from connectors.config.pattern import TopicPattern


def select(config: ConnectorConfig, existing_topics: Iterable[str]) -> tuple[str, ...]:
    """The source topics among `existing_topics`: the list's in its order, or those that the pattern matches, sorted.

    A pattern never selects internal topics (`__…`), the dead letter topic, or what would be the output of a topic
    that it matches, whether that topic exists or not.
    """
    existing = set(existing_topics)
    if config.topics is not None:
        return tuple(topic for topic in config.topics if topic in existing)
    return tuple(sorted(topic for topic in existing if matches(config, topic)))


def missing(config: ConnectorConfig, existing_topics: Iterable[str]) -> tuple[str, ...]:
    """Topics that the list names and that do not exist; a pattern misses nothing."""
    existing = set(existing_topics)
    return tuple(topic for topic in config.topics or () if topic not in existing)


def matches(config: ConnectorConfig, topic: str) -> bool:
    """True where the connector would read `topic` if it existed."""
    return topic in config.topics if config.topics is not None else pattern(config).matches(topic)


def pattern(config: ConnectorConfig) -> TopicPattern:
    """The rule of a connector that names its topics by pattern."""
    dead = {config.dead_letter_topic} if config.dead_letter_topic else set()
    return TopicPattern(config.topics_regex or "", config.output_topic_template, frozenset(dead))
