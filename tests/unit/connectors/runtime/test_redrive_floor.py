"""What a redrive keeps in the connector's storage stands in for what the brokers have forgotten."""

from __future__ import annotations

import pytest

from connectors.errors import ConflictError
from connectors.runtime.redrive_floor import NAME, RedriveFloor
from tests.support.memory.storage import MemoryStorage


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
    floor = RedriveFloor(MemoryStorage(), "dead", "id")
    floor.keep({0: (5, "kept"), 1: (8, "")})
    assert floor.filled(held) == expected  # type: ignore[arg-type]  # a table


@pytest.mark.parametrize(("topic", "topic_id"), [("dead", "another"), ("other", "id")])
def test_positions_of_another_topic_say_nothing(topic: str, topic_id: str) -> None:
    """Also of one that was deleted and has come back under its name: its offsets begin again."""
    storage = MemoryStorage()
    RedriveFloor(storage, "dead", "id").keep({0: (5, "")})
    assert RedriveFloor(storage, topic, topic_id).filled({0: None}) == {}


def test_a_damaged_file_matters_only_where_it_is_needed() -> None:
    """Then nothing is sent, as letters may have gone."""
    storage = MemoryStorage()
    storage.write(NAME, b"{")
    floor = RedriveFloor(storage, "dead", "id")
    assert floor.filled({0: (1, "")}) == {0: (1, "")}
    with pytest.raises(ConflictError, match=r"redrive\.json"):
        floor.filled({0: None})


def test_a_connector_that_was_never_redriven_has_nothing_kept() -> None:
    """Then the first letter is the first."""
    assert RedriveFloor(MemoryStorage(), "dead", "id").filled({0: None}) == {}
