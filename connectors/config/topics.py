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
    """`topics.regex`, the template `output.topic`, and the patterns `topics.exclude`.

    `never`: names that are never matched (the dead letter topic). `routed`: a transform gives what the template has in
    place of `${topic}`, which may be any name.
    """

    regex: str
    output: str = "none"
    never: frozenset[str] = frozenset()
    routed: bool = False
    exclude: tuple[str, ...] = ()

    def matches(self, name: str) -> bool:
        """Returns whether `name` is a source topic: not internal (`__…`), not excluded, and no output of its own.

        An output is own if its source matches `topics.regex`, also if `topics.exclude` leaves that out: it may have
        been read before. Raises PatternError if that takes too long.
        """
        if name in self.never or not self._fits(name) or self._is_excluded(name):
            return False
        source = source_of(self.output, name)
        return source is None or not (self.routed or self._fits(source))

    def _fits(self, name: str) -> bool:
        return not is_internal(name) and _matches("topics.regex", self.regex, name)

    def _is_excluded(self, name: str) -> bool:
        return any(_matches("topics.exclude", pattern, name) for pattern in self.exclude)


def _matches(setting: str, pattern: str, name: str) -> bool:
    try:
        return java_pattern(pattern).matches(name)
    except PatternError as error:
        raise PatternError(f"{setting}: {error.message}", error.action) from None


def source_of(template: str, output: str) -> str | None:
    """Returns the topic that has the output `output` by a template with `${topic}`; None if there can be none."""
    before, placeholder, after = template.partition("${topic}")
    if not placeholder or len(output) <= len(before) + len(after):
        return None
    fits = output.startswith(before) and output.endswith(after)
    return output[len(before) : len(output) - len(after)] if fits else None


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
