"""Decides which topics a connector reads: one rule for configuration, source and broker. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

import msgspec

from connectors.errors import PatternError
from connectors.java_pattern import java_pattern
from connectors.match_time import LOOK_S, matches_within

if TYPE_CHECKING:  # Spark's Python workers need the pattern, and no models
    from connectors.config.connector import ConnectorConfig


_NAME: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}", re.ASCII)


def is_topic_name(name: str) -> bool:
    """Returns whether Kafka allows such a topic (org.apache.kafka.common.internals.Topic)."""
    return name not in (".", "..") and bool(_NAME.fullmatch(name))


def is_internal(name: str) -> bool:
    """Returns whether a topic counts as internal, as `__consumer_offsets` does: who writes there breaks a cluster."""
    return name.startswith("__")


class TopicPattern(msgspec.Struct, frozen=True):
    """`topics.regex`, the template `output.topic`, and names that are never matched (the dead letter topic).

    `routed`: a transform gives what the template has in place of `${topic}`, which may be any name.
    """

    regex: str
    output: str = "none"
    exclude: frozenset[str] = frozenset()
    routed: bool = False

    def matches(self, name: str) -> bool:
        """Returns whether `name` is a source topic: not internal (`__…`), no output of a topic that matches itself.

        Raises PatternError if that takes too long.
        """
        source = source_of(self.output, name)
        own = name in self.exclude or (source is not None and (self.routed or self._fits(source)))
        return self._fits(name) and not own

    def _fits(self, name: str) -> bool:
        try:
            return not is_internal(name) and java_pattern(self.regex).matches(name)
        except PatternError as error:
            raise PatternError(f"topics.regex: {error.message}", error.action) from None


def source_of(template: str, output: str) -> str | None:
    """Returns the topic that has the output `output` by a template with `${topic}`; None if there can be none."""
    before, placeholder, after = template.partition("${topic}")
    if not placeholder or len(output) <= len(before) + len(after):
        return None
    fits = output.startswith(before) and output.endswith(after)
    return output[len(before) : len(output) - len(after)] if fits else None


def select(config: ConnectorConfig, existing_topics: Iterable[str], look_s: float = LOOK_S) -> tuple[str, ...]:
    """Selects source topics among `existing_topics`: the list's in its order, or those of the pattern, sorted.

    A pattern never selects internal topics (`__…`), the dead letter topic, or what would be the output of a topic
    that it matches, whether that topic exists or not. Raises PatternError if that takes longer than `look_s`.
    """
    existing = set(existing_topics)
    if config.topics is not None:
        return tuple(topic for topic in config.topics if topic in existing)
    with matches_within(look_s):
        return tuple(sorted(topic for topic in existing if matches(config, topic)))


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
    return TopicPattern(config.topics_regex or "", config.output_topic_template, frozenset(dead), config.routes)
