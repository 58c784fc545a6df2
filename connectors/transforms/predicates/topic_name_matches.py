"""Is true of records of topics with a name that matches a pattern (`TopicNameMatches`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from connectors.data.record import ConnectRecord
from connectors.java_pattern import check_pattern, java_pattern
from connectors.options import REQUIRED, Option
from connectors.transforms.transform import Predicate


class TopicNameMatches(Predicate):
    """The whole name has to match; after RegexRouter it is the new one."""

    OPTIONS = (Option("pattern", "STRING", REQUIRED, "A Java regular expression.", check=check_pattern),)

    def __init__(self, options: Mapping[str, Any]) -> None:
        super().__init__(options)
        self._pattern = java_pattern(options["pattern"])

    def test(self, record: ConnectRecord) -> bool:
        """See `Predicate`."""
        return self._pattern.matches(record.topic)
