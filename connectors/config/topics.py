"""Which topics a connector reads: pure."""

from __future__ import annotations

from collections.abc import Iterable

from connectors.config.connector import ConnectorConfig
from connectors.config.java_regex import translate


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
    if config.topics is not None:
        return topic in config.topics
    return _matched(config, topic) and not is_own(config, topic)


def is_own(config: ConnectorConfig, topic: str) -> bool:
    """True for the connector's own output and dead letter topics."""
    source = _source_of(config, topic)
    return topic == config.dead_letter_topic or (source is not None and _named(config, source))


def _named(config: ConnectorConfig, topic: str) -> bool:
    return topic in config.topics if config.topics is not None else _matched(config, topic)


def _matched(config: ConnectorConfig, topic: str) -> bool:
    return not topic.startswith("__") and bool(translate(config.topics_regex or "").fullmatch(topic))


def _source_of(config: ConnectorConfig, topic: str) -> str | None:
    """The topic whose output would be `topic`; None where there can be none."""
    before, placeholder, after = config.output_topic_template.partition("${topic}")
    if not placeholder:
        return (config.topics or (None,))[0] if topic == before and config.publishes else None
    middle = topic[len(before) : len(topic) - len(after)]
    fits = topic.startswith(before) and topic.endswith(after) and len(topic) > len(before) + len(after)
    return middle if fits else None
