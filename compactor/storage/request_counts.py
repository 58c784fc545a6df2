"""Counts what is asked of object stores: each request has its price.

Counts are of a process. Those of Spark's tasks come to the driver with their answers, as reports.
"""

from __future__ import annotations

import json
import os
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final

REQUESTS_BY_KIND: Final = ("get", "head", "list", "put", "delete")
"""The kinds of requests; a part of an upload is a put, a bulk deletion one delete."""

BYTES_BY_KIND: Final = ("bytes_read", "bytes_written")


class RequestCounts:
    """Requests by kind, and bytes of objects that were read and written. Threads share it."""

    def __init__(self) -> None:
        self._turn = threading.Lock()
        # By kind, since the process began; never set back.
        self._counts: Counter[str] = Counter()

    def __reduce__(self) -> tuple[Callable[[], RequestCounts], tuple[()]]:
        return _of_this_process, ()  # a task that names REQUESTS counts in its own process

    def add(self, kind: str, by: int = 1) -> None:
        """Adds `by` to the count of `kind`."""
        with self._turn:
            self._counts[kind] += by

    def values(self) -> Counter[str]:
        """Returns a copy of all counts by kind."""
        with self._turn:
            return self._counts.copy()

    def report_since(self, before: Mapping[str, int]) -> str | None:
        """Returns what was counted since `values` returned `before`, for `add_report`; None if nothing was."""
        counted = self.values()
        counted.subtract(before)
        counts = {kind: count for kind, count in counted.items() if count}
        return json.dumps([os.getpid(), counts]) if counts else None

    def add_report(self, report: str | None) -> None:
        """Adds what a task reports, unless that ran in this process, which has counted it."""
        process, counts = (os.getpid(), {}) if report is None else json.loads(report)
        if process != os.getpid():
            for kind, count in counts.items():
                self.add(kind, count)


REQUESTS: Final = RequestCounts()
"""Those of this process, and of the tasks that it has started."""


def _of_this_process() -> RequestCounts:
    return REQUESTS
