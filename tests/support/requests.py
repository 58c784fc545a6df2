"""Leaves requests for a worker, as commands do."""

from __future__ import annotations

from typing import Any

from compactor.catalog import requests
from compactor.catalog.requests import Request
from compactor.storage.base import Storage


def leave(
    storage: Storage,
    kind: str,
    now_ms: int,
    topic: str | None = None,
    partition: int | None = None,
    until_ms: int | None = None,
    **more: Any,
) -> Request:
    """Leaves a request of `kind` for all logs, or for those of `topic`, or its `partition`; `more` of an erasure."""
    wanted = Request(id="", kind=kind, asked_ms=now_ms, topic=topic, partition=partition, until_ms=until_ms, **more)
    return requests.leave(storage, wanted)
