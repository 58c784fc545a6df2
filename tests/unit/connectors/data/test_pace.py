"""What goes over the members of a value can be ended in its midst, and an ordinary value is asked for hardly ever."""

from __future__ import annotations

import threading
from collections.abc import Collection
from typing import Any

import pytest

from connectors.data.pace import EVERY, OF_LIST, limited, paced, width_of
from connectors.data.schema import INT32, STRING, Field, Schema, Type


class Limit:
    """Counts how often it is asked; raises TimeoutError from `last` times on."""

    def __init__(self, last: int = 1_000_000) -> None:
        self.asked = 0
        self._last = last

    def check(self) -> None:
        """Is asked."""
        self.asked += 1
        if self.asked >= self._last:
            raise TimeoutError


@pytest.mark.parametrize(
    "members",
    [list(range(3 * EVERY)), dict.fromkeys(range(3 * EVERY), "v").items(), {"a": 1}.values(), [], [None]],
    ids=["list", "items", "values", "empty", "null"],
)
def test_all_members_come_in_their_order(members: Collection[Any]) -> None:
    """Whatever the width of each."""
    for width in (1, 7, 2 * EVERY):
        assert list(paced(members, width)) == list(members)


@pytest.mark.parametrize(
    ("lists", "length", "width"),
    [
        (1, 20 * EVERY, 1),
        (20, EVERY, 1),
        (20 * EVERY // 16, 16, 1),
        (10 * EVERY, 2, 1),
        (1, 20, EVERY),
        (EVERY // 10, 10, 20),
    ],
    ids=["one list", "long lists", "short lists", "pairs", "wide structs", "short lists of structs"],
)
def test_the_limit_is_asked_by_members_however_they_are_nested(lists: int, length: int, width: int) -> None:
    """Twenty times EVERY members are twenty questions."""
    limit = Limit()
    with limited(limit.check):
        for _ in range(lists):
            assert len(list(paced([None] * length, width))) == length
    assert 15 <= limit.asked <= 21


def test_what_the_limit_raises_ends_the_work() -> None:
    """No more than twice EVERY members are gone over after that."""
    gone: list[None] = []
    with limited(Limit(3).check), pytest.raises(TimeoutError):
        gone.extend(paced([None] * (20 * EVERY)))
    assert len(gone) <= 4 * EVERY


def test_a_limit_is_that_of_its_block_and_thread() -> None:
    """After the block the one around it counts again; another thread has none."""
    outer, inner = Limit(), Limit()
    many = [None] * (4 * EVERY)
    with limited(outer.check):
        with limited(inner.check):
            assert len(list(paced(many))) == len(many)
            other = threading.Thread(target=lambda: list(paced(many)))
            asked = inner.asked
            other.start()
            other.join(10)
            assert (inner.asked, outer.asked) == (asked, 0)
        assert len(list(paced(many))) == len(many)
    assert outer.asked > 0
    assert len(list(paced(many))) == len(many)


def test_the_width_is_that_of_all_structs_within_one_another() -> None:
    """A list counts as some members, whatever is in it."""
    inner = Schema(type=Type.STRUCT, fields=(Field("a", INT32), Field("b", STRING)))
    many = Schema(type=Type.ARRAY, value_schema=inner)
    outer = Schema(type=Type.STRUCT, fields=(Field("x", inner), Field("y", many), Field("z", INT32)))
    assert [width_of(schema) for schema in (INT32, inner, many, outer)] == [1, 3, OF_LIST, 5 + OF_LIST]
