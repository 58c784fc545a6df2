"""The fold's result in plain dicts, for comparison with the engine's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any


class DictModel:
    """Folds a log by key in plain dicts: the result that the engine is compared with.

    Rows are dicts with at least the columns partition, offset, key and value of `compactor.model.record`; a missing
    topic is "". Rows without a key, or with `rejected` set, are never the latest of anything.
    """

    def __init__(self, rows: Iterable[Mapping[str, Any]] = ()) -> None:
        self.rows: list[dict[str, Any]] = []
        self.add(rows)

    def add(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Adds rows, in any order."""
        self.rows = sorted((*self.rows, *map(dict, rows)), key=_at)

    def latest(self, start: int = 0, end: int | None = None) -> dict[tuple[str, int, bytes], dict[str, Any]]:
        """Returns the last row of every (topic, partition, key) among the offsets [start, end)."""
        inside = (row for row in self.rows if start <= row["offset"] and (end is None or row["offset"] < end))
        keyed = (row for row in inside if row["key"] is not None and not row.get("rejected"))
        return {(*_at(row)[:2], row["key"]): row for row in keyed}

    def survivors(self, start: int = 0, end: int | None = None) -> list[dict[str, Any]]:
        """Returns the same rows, tombstones included, by topic, partition and offset."""
        return sorted(self.latest(start, end).values(), key=_at)

    def live(self, end: int | None = None) -> list[dict[str, Any]]:
        """Returns the rows of a snapshot at `end`: the survivors that are no tombstones."""
        return [row for row in self.survivors(0, end) if row["value"] is not None]


def _at(row: Mapping[str, Any]) -> tuple[str, int, int]:
    return row.get("topic") or "", row["partition"], row["offset"]
