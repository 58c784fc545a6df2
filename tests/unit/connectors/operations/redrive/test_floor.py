"""What a redrive keeps in the connector's storage stands in for what the brokers have forgotten."""

from __future__ import annotations

import pytest

from connectors.errors import ConflictError
from connectors.operations.redrive.floor import EARLIER, RedriveFloor, is_kept
from tests.support.memory.storage import MemoryStorage


def begun(storage: MemoryStorage) -> RedriveFloor:
    """A run that has taken its number."""
    floor = RedriveFloor(storage, "dead", "id")
    floor.begin()
    return floor


@pytest.mark.parametrize(
    ("held", "expected"),
    [
        ({0: (9, "x"), 1: (3, "")}, {0: (9, "x"), 1: (3, "")}),
        ({0: None, 1: (3, "")}, {0: (5, "kept"), 1: (3, "")}),
        ({0: None, 1: None}, {0: (5, "kept"), 1: (8, "")}),
    ],
)
def test_the_groups_position_is_the_truth_where_it_has_one(held: dict[int, object], expected: object) -> None:
    """Of each partition for itself; also where it was set back."""
    floor = begun(MemoryStorage())
    floor.keep({0: (5, "kept"), 1: (8, "")})
    assert floor.filled(held) == expected  # type: ignore[arg-type]  # a table


@pytest.mark.parametrize(("topic", "topic_id"), [("dead", "another"), ("other", "id")])
def test_positions_of_another_topic_say_nothing(topic: str, topic_id: str) -> None:
    """Also of one that was deleted and has come back under its name: its offsets begin again."""
    storage = MemoryStorage()
    begun(storage).keep({0: (5, "")})
    assert RedriveFloor(storage, topic, topic_id).filled({0: None}) == {}


def test_a_damaged_file_matters_only_where_it_is_needed() -> None:
    """Then nothing is sent, as letters may have gone."""
    storage = MemoryStorage()
    begun(storage)
    storage.write("redrive/0000000001.json", b"{")
    for floor in (RedriveFloor(storage, "dead", "id"), begun(storage)):
        assert floor.filled({0: (1, "")}) == {0: (1, "")}
        with pytest.raises(ConflictError, match="/redrive, with the positions of dead"):
            floor.filled({0: None})


def test_a_connector_that_was_never_redriven_has_nothing_kept() -> None:
    """Then the first letter is the first."""
    assert RedriveFloor(MemoryStorage(), "dead", "id").filled({0: None}) == {}


def test_a_run_that_was_frozen_sets_nothing_back() -> None:
    """It wakes up to write what it knew, after a newer run that came further: that one is read, and it is told."""
    storage = MemoryStorage()
    frozen = begun(storage)
    frozen.keep({0: (5, "")})
    newer = begun(storage)
    assert newer.filled({0: None}) == {0: (5, "")}
    newer.keep({0: (1_205, "")})
    with pytest.raises(ConflictError, match="Another redrive of dead has taken over"):
        frozen.keep({0: (6, "")})
    storage.write("redrive/0000000001.json", storage.read("redrive/0000000002.json").replace(b"1205", b"6"))
    assert RedriveFloor(storage, "dead", "id").filled({0: None}) == {0: (1_205, "")}
    begun(storage).keep({0: (1_205, "")})
    assert storage.list("redrive") == ["0000000003.json"]


def test_two_runs_never_have_one_number() -> None:
    """Also if a store's list does not show the other's file yet."""
    storage = MemoryStorage()
    first = begun(storage)
    first.keep({0: (5, "")})
    listed = storage.list
    storage.list = lambda folder: [] if folder == "redrive" else listed(folder)  # type: ignore[method-assign]
    begun(storage)
    storage.list = listed  # type: ignore[method-assign]
    assert storage.list("redrive") == ["0000000001.json", "0000000002.json"]
    assert RedriveFloor(storage, "dead", "id").filled({0: None}) == {0: (5, "")}


def test_what_an_earlier_version_kept_is_taken_over() -> None:
    """Its one file counts until a run has written its own, and goes then."""
    storage = MemoryStorage()
    assert not is_kept(storage)
    storage.write(EARLIER, b'{"topic":"dead","topic_id":"id","positions":{"0":[5,""]},"format":1}')
    assert is_kept(storage)
    assert RedriveFloor(storage, "dead", "id").filled({0: None}) == {0: (5, "")}
    run = begun(storage)
    assert run.filled({0: None}) == {0: (5, "")}
    run.keep({0: (6, "")})
    assert [info.path for info in storage.walk("")] == ["redrive/0000000001.json"]
    assert is_kept(storage)


def test_who_only_looks_writes_nothing() -> None:
    """Without a number there is no file to write to."""
    storage = MemoryStorage()
    with pytest.raises(ConflictError):
        RedriveFloor(storage, "dead", "id").keep({})
    assert storage.walk("") == []
