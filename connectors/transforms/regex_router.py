"""Gives records another topic by a pattern (`RegexRouter`): the name that `output.topic` has for `${topic}`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from msgspec.structs import replace

from connectors.data.record import ConnectRecord
from connectors.errors import PatternError
from connectors.java_pattern import LONGEST_TEXT, check_pattern, java_pattern
from connectors.options import REQUIRED, Option, OptionsError
from connectors.transforms.topic_results import TopicResults
from connectors.transforms.transform import Transform

_GROUP: Final = re.compile(
    r"\\(?P<quoted>.)|\$\{(?P<name>[a-zA-Z][a-zA-Z0-9]*)\}|\$(?P<number>\d+)|(?P<odd>[\\$])", re.DOTALL
)


class RegexRouter(Transform):
    """A topic with a name that matches as a whole gets `replacement`, with `$1` for a group; others keep theirs."""

    OPTIONS = (
        Option("regex", "STRING", REQUIRED, "A Java regular expression.", check=check_pattern, importance="HIGH"),
        Option("replacement", "STRING", REQUIRED, "The new name; `$1` is the first group.", importance="HIGH"),
    )

    def __init__(self, options: Mapping[str, Any]) -> None:
        super().__init__(options)
        pattern = java_pattern(options["regex"])
        try:
            self._template = _template(options["replacement"], pattern.group_count, pattern.group_names)
        except ValueError as error:
            raise OptionsError([("replacement", str(error))]) from None
        self._routes = TopicResults[str](self._routed, "router", options["regex"], options["replacement"])

    def apply(self, record: ConnectRecord) -> ConnectRecord:
        """See `Transform`."""
        topic = self._routes.of(record.topic)
        return record if topic == record.topic else replace(record, topic=topic)

    def _routed(self, topic: str) -> str:
        groups = java_pattern(self.options["regex"]).groups(topic)
        if groups is None:
            return topic
        parts = [part if isinstance(part, str) else groups[part] or "" for part in self._template]
        length = sum(map(len, parts))
        if length > LONGEST_TEXT:  # routers one after the other could double a name until memory ends
            raise PatternError(
                f'Topic "{topic:.250}" would get a name of {length} characters; allowed are {LONGEST_TEXT}.',
                "Shorten the replacement of the RegexRouter.",
            )
        return "".join(parts)


def _template(text: str, groups: int, names: Mapping[str, int]) -> list[str | int]:
    """Reads a replacement as Java does (Matcher.appendReplacement). Raises ValueError for a group that there is not."""
    parts: list[str | int] = []
    end = 0
    for group in _GROUP.finditer(text):
        parts.append(text[end : group.start()])
        end = group.end()
        if group["odd"]:
            raise ValueError(f'a "{group["odd"]}" that is meant as itself must be written "\\{group["odd"]}".')
        if group["quoted"]:
            parts.append(group["quoted"])
        elif group["name"]:
            if group["name"] not in names:
                raise ValueError(f"the pattern has no group {group['name']}.")
            parts.append(names[group["name"]])
        else:
            digits = _most_digits(group["number"], groups)
            parts.append(int(digits))
            end = group.start() + 1 + len(digits)
    return [*parts, text[end:]]


def _most_digits(digits: str, groups: int) -> str:
    """Returns the digits that name a group: as many as there is a group for, as in Java."""
    if int(digits[0]) > groups:
        raise ValueError(f"the pattern has no group {digits[0]}.")
    longest = min(len(digits), len(str(groups)))
    most = next(size for size in range(longest, 0, -1) if int(digits[:size]) <= groups)
    return digits[:most]
