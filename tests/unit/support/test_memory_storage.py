"""The twins for tests do what they say."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from compactor.errors import StorageError
from tests.support.clocks import ManualClock
from tests.support.dict_model import DictModel
from tests.support.memory.storage import FailingStorage, MemoryStorage, lose_answer


def row(offset: int, key: bytes | None, value: bytes | None = b"v", partition: int = 0, **more: Any) -> dict[str, Any]:
    return {"topic": "t", "partition": partition, "offset": offset, "key": key, "value": value, **more}


def test_clock_moves_only_when_told() -> None:
    """The clock stands; waiting moves it unless the event is set."""
    clock, event = ManualClock(1000), threading.Event()
    assert (clock.now_ms(), clock.advance(5), clock.monotonic_ms()) == (1000, 1005, 1005)
    assert not clock.wait_ms(2_000, event)
    event.set()
    assert clock.wait_ms(2_000, event)
    assert clock.now_ms() == 3005


def test_model_keeps_the_last_of_each_key() -> None:
    """Of every key of a partition the last row counts, tombstones too; keyless and rejected rows never."""
    rows = [row(0, b"a"), row(1, b"b"), row(2, b"a", None), row(3, None), row(4, b"b", rejected="undecodable")]
    model = DictModel([*reversed(rows), row(1, b"a", partition=1)])
    assert [(kept["partition"], kept["offset"]) for kept in model.survivors()] == [(0, 1), (0, 2), (1, 1)]
    assert [(kept["partition"], kept["offset"]) for kept in model.live()] == [(0, 1), (1, 1)]
    assert [kept["offset"] for kept in model.survivors(0, 2) if kept["partition"] == 0] == [0, 1]
    assert [kept["offset"] for kept in model.survivors(2)] == [2]


def test_happenings_happen_once_in_order() -> None:
    """What is planned for a call happens at the next one that it fits, and not again."""
    storage = FailingStorage(MemoryStorage())
    storage.before("create", lose_answer, "catalog")
    assert storage.create("runs/x", b"")
    with pytest.raises(StorageError):
        storage.create("catalog/x", b"")
    assert storage.create("catalog/x", b"")
    storage.after("create", lose_answer)
    with pytest.raises(StorageError):
        storage.sub("catalog").create("y", b"")
    assert storage.exists("catalog/y")


def test_frozen_list() -> None:
    """A frozen list is behind until it is thawed, also one that was empty."""
    storage = FailingStorage(MemoryStorage())
    storage.freeze("f")
    storage.write("f/a", b"")
    assert storage.list("f") == []
    storage.thaw()
    assert storage.list("f") == ["a"]
