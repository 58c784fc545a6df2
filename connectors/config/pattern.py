"""Source topics by pattern: one rule for configuration, source and gateway. Pure."""

from __future__ import annotations

from functools import cache

import msgspec

from connectors.config.java_regex import translate

_translate = cache(translate)


class TopicPattern(msgspec.Struct, frozen=True):
    """`topics.regex`, the template `output.topic`, and names that are never matched (the dead letter topic)."""

    regex: str
    output: str = "none"
    exclude: frozenset[str] = frozenset()

    def matches(self, name: str) -> bool:
        """Whether `name` is a source topic: no internal one (`__…`), no output of a topic that matches itself."""
        source = source_of(self.output, name)
        own = name in self.exclude or (source is not None and self._fits(source))
        return self._fits(name) and not own

    def _fits(self, name: str) -> bool:
        return not name.startswith("__") and _translate(self.regex).fullmatch(name) is not None


def source_of(template: str, output: str) -> str | None:
    """The topic whose output would be `output` by a template with `${topic}`; None where there can be none."""
    before, placeholder, after = template.partition("${topic}")
    if not placeholder or len(output) <= len(before) + len(after):
        return None
    fits = output.startswith(before) and output.endswith(after)
    return output[len(before) : len(output) - len(after)] if fits else None
