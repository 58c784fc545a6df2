"""A worker that lives as far as commands see: it holds a connector's lock, and answers what is asked of it."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from compactor.catalog import requests
from compactor.catalog.owner_lock import OwnerLock, this_process
from compactor.catalog.requests import Answer, Request
from compactor.storage.base import Storage
from connectors.clock import SystemClock

_LOOK_S = 0.02


@contextmanager
def live_worker(storage: Storage, result: Mapping[str, Any]) -> Iterator[list[Request]]:
    """Answers each request in the folder `storage` with `result` during the block; yields what was asked."""
    lock, over, asked = OwnerLock(storage), threading.Event(), list[Request]()
    assert lock.claim(this_process())

    def answer() -> None:
        while not over.wait(_LOOK_S):
            for request in requests.pending(storage, SystemClock().now_ms()):
                asked.append(request)
                requests.answer(storage, request.id, Answer(ok=True, result=dict(result)))

    answering = threading.Thread(target=answer, daemon=True)
    answering.start()
    try:
        yield asked
    finally:
        over.set()
        answering.join(10)
        lock.release()
