from __future__ import annotations

import pytest

from compactor.catalog import requests
from compactor.catalog.requests import Answer
from compactor.errors import StorageError
from connectors.runtime.request_answers import RestartRequests
from connectors.runtime.request_handler import RESYNC
from tests.support.clocks import ManualClock
from tests.support.memory.storage import FailingStorage, MemoryStorage
from tests.support.requests import leave


@pytest.mark.parametrize("own", [Answer(ok=True, result={"logs": []}), Answer(ok=False, message="Refused.")])
def test_the_answer_of_a_resync_outlives_a_store_that_refuses_it(own: Answer) -> None:
    """What came of its run does not stand for it, and no later run carries it out again."""
    clock = ManualClock(0)
    storage = FailingStorage(MemoryStorage(clock))
    left = leave(storage, RESYNC, clock.now_ms())
    waiting = RestartRequests(storage, clock)
    (begun,) = waiting.begin_restarts()
    for _ in range(2):
        storage.before("create", _refuse, ".done")
    waiting.answer(begun, own)
    waiting.answer_restarts(Answer(ok=False, message="The run has failed."))
    assert (requests.answered(storage, left.id), waiting.begin_restarts()) == (None, ())
    waiting.answer_restarts(Answer(ok=True, result={"state": "RUNNING"}))
    assert requests.answered(storage, left.id) == own


def test_a_resync_that_nothing_is_known_of_is_begun_again() -> None:
    """A store that refuses the failure of its run leaves it to the next run."""
    clock = ManualClock(0)
    storage = FailingStorage(MemoryStorage(clock))
    leave(storage, RESYNC, clock.now_ms())
    waiting = RestartRequests(storage, clock)
    begun = waiting.begin_restarts()
    storage.before("create", _refuse, ".done")
    waiting.answer_restarts(Answer(ok=False, message="The run has failed."))
    assert waiting.begin_restarts() == begun


def _refuse() -> None:
    raise StorageError("503")
