"""Decides which names are those of topics, and which of them a pattern takes. Pure.

Spark's Python workers have this module: it loads no models.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from connectors.errors import PatternError
from connectors.java_pattern import java_pattern

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
        if name in self.never or not self._fits(name):
            return False
        if any(_matches("topics.exclude", pattern, name) for pattern in self.exclude):
            return False
        source = source_of(self.output, name)
        return source is None or not (self.routed or self._fits(source))

    def _fits(self, name: str) -> bool:
        return not is_internal(name) and _matches("topics.regex", self.regex, name)


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
