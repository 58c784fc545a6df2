"""The predicates of Kafka: what they say of a record decides whether a transform is applied to it (KIP-585)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from connectors.data.record import ConnectRecord
from connectors.java_pattern import check_pattern, java_pattern
from connectors.options import REQUIRED, Option
from connectors.transforms.topic_results import TopicResults
from connectors.transforms.transform import Predicate, Side


def _not_empty(name: str) -> str | None:
    return None if name else "a name is needed."


class HasHeaderKey(Predicate):
    """One header of that name is enough."""

    OPTIONS = (Option("name", "STRING", REQUIRED, "The header's name.", check=_not_empty),)

    def __init__(self, options: Mapping[str, Any]) -> None:
        super().__init__(options)
        self._name: str = options["name"]

    def test(self, record: ConnectRecord) -> bool:
        """See `Predicate`."""
        return any(header.key == self._name for header in record.headers)


class RecordIsTombstone(Predicate):
    """The value counts as it is converted."""

    READS = frozenset({Side.VALUE})

    def test(self, record: ConnectRecord) -> bool:
        """See `Predicate`."""
        return record.value is None


class TopicNameMatches(Predicate):
    """The whole name has to match; after RegexRouter it is the new one."""

    OPTIONS = (Option("pattern", "STRING", REQUIRED, "A Java regular expression.", check=check_pattern),)

    def __init__(self, options: Mapping[str, Any]) -> None:
        super().__init__(options)
        java_pattern(options["pattern"])  # so that a wrong one is an error now
        self._matches = TopicResults[bool](self._fits, "predicate", options["pattern"])

    def test(self, record: ConnectRecord) -> bool:
        """See `Predicate`."""
        return self._matches.of(record.topic)

    def _fits(self, topic: str) -> bool:
        return java_pattern(self.options["pattern"]).matches(topic)
