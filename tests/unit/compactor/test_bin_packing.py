from __future__ import annotations

from collections.abc import Iterator

import pytest

from compactor.bin_packing import AtMost, Limit, Until, pack, unit_weight


def own(item: int) -> int:
    return item


@pytest.mark.parametrize(
    ("items", "limits", "expected"),
    [
        ([], [AtMost(5, own)], []),
        ([2, 3, 1], [AtMost(5, own)], [[2, 3], [1]]),
        ([9, 1, 9], [AtMost(5, own)], [[9], [1], [9]]),
        ([0, 0, 5, 0], [AtMost(5, own)], [[0, 0, 5, 0]]),
        ([1, 4, 1, 9, 1], [Until(5, own)], [[1, 4], [1, 9], [1]]),
        ([9, 0, 0], [Until(5, own)], [[9], [0, 0]]),
        ([1, 1, 1], [AtMost(2, unit_weight)], [[1, 1], [1]]),
        ([1, 1, 1, 5, 1], [AtMost(2, unit_weight), Until(5, own)], [[1, 1], [1, 5], [1]]),
        ([1, 2], [], [[1, 2]]),
    ],
)
def test_neighbours_share_a_bin_within_all_limits(
    items: list[int], limits: list[Limit], expected: list[list[int]]
) -> None:
    """`AtMost` never goes beyond its limit but for a single item; `Until` ends a bin with the item that reaches it."""
    assert list(pack(items, *limits)) == expected


def test_a_bin_is_there_before_the_items_after_the_next_are_made() -> None:
    """Items may be large: no more of them is held than one bin and the item that did not fit."""
    made: list[int] = []

    def items() -> Iterator[int]:
        for item in range(9):
            made.append(item)
            yield item

    assert next(pack(items(), AtMost(2, unit_weight))) == [0, 1]
    assert made == [0, 1, 2]
