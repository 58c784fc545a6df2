"""Selects the topics that a connector reads: one rule for configuration, source and broker. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from connectors.config.connector import ConnectorConfig
from connectors.config.topics import TopicPattern, is_topic_name
from connectors.errors import PatternError
from connectors.match_time import LOOK_S, matches_within


def select(config: ConnectorConfig, existing_topics: Iterable[str], look_s: float = LOOK_S) -> tuple[str, ...]:
    """Selects source topics among `existing_topics`: the list's in its order, or those of the pattern, sorted.

    A pattern never selects internal topics (`__…`), those of `topics.exclude`, the dead letter topic, or what would be
    the output of a topic that it matches, whether that topic exists or not. Raises PatternError if that takes longer
    than `look_s`.
    """
    existing = set(existing_topics)
    if config.topics is not None:
        return tuple(topic for topic in config.topics if topic in existing)
    rule = pattern(config)
    with matches_within(look_s):
        return tuple(sorted(topic for topic in existing if rule.matches(topic)))


def missing(config: ConnectorConfig, existing_topics: Iterable[str]) -> tuple[str, ...]:
    """Returns topics that the list names and that do not exist; a pattern misses nothing."""
    existing = set(existing_topics)
    return tuple(topic for topic in config.topics or () if topic not in existing)


def matches(config: ConnectorConfig, topic: str) -> bool:
    """Returns whether the connector would read `topic` if it existed."""
    return topic in config.source_names if config.topics is not None else pattern(config).matches(topic)


def is_source(config: ConnectorConfig, name: str) -> bool:
    """Returns whether `name`, which anyone may have written, is a topic that the connector would read; never raises."""
    try:
        return is_topic_name(name) and matches(config, name)
    except PatternError:
        return False


def pattern(config: ConnectorConfig) -> TopicPattern:
    """Returns the rule of a connector that names its topics by pattern."""
    dead = {config.dead_letter_topic} if config.dead_letter_topic else set()
    return TopicPattern(
        regex=config.topics_regex or "",
        output=config.output_topic_template,
        exclude=config.topics_exclude or (),
        never=frozenset(dead),
        routed=config.routes,
    )
