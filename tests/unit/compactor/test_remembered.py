"""Values that never change are remembered up to a number of bytes; those that were not asked for longest go first."""

from __future__ import annotations

from compactor.remembered import Remembered


def _remembered(**sizes: int) -> Remembered[str]:
    """Returns ten bytes' worth of values, each of which is its place, put in their order."""
    values = Remembered[str](10)
    for place, size in sizes.items():
        values.put(place, place, size)
    return values


def test_those_that_were_not_asked_for_longest_are_forgotten() -> None:
    """As many as make room; a look at a value counts."""
    values = _remembered(a=4, b=4)
    assert values.get("a") == "a"
    values.put("c", "c", 3)
    assert [values.get(place) for place in "abc"] == ["a", None, "c"]


def test_a_value_that_is_dropped_makes_room() -> None:
    """Its bytes are counted no longer, nor those of one that was not there; another value may take its place."""
    values = _remembered(a=6, b=4)
    values.drop(["a", "x"])
    assert values.get("a") is None
    assert values.put("a", "new", 6) == "new"
    assert [values.get(place) for place in "ab"] == ["new", "b"]


def test_the_first_value_of_a_place_stays() -> None:
    """Two threads that have read the same get one value."""
    values = _remembered(a=1)
    assert values.put("a", "other", 1) == "a"
    assert len(values) == 1


def test_one_value_is_remembered_whatever_its_size() -> None:
    """Until another one comes: it would be read again with each question."""
    values = _remembered(a=50)
    assert values.get("a") == "a"
    values.put("b", "b", 1)
    assert [values.get(place) for place in "ab"] == [None, "b"]
