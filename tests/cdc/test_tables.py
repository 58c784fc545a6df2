"""Each table of a database is what keyfold makes of Debezium's topics, through deaths and changes of tables."""

from __future__ import annotations

from itertools import product
from typing import Final

import pytest

from tests.support.cdc.page import ENCODINGS, stated_results
from tests.support.cdc.story import LIMIT_S, Story
from tests.support.cdc.tables import KEYLESS_CHANGES, TABLES

pytestmark = pytest.mark.timeout(6 * LIMIT_S)

STATED: Final = stated_results()


def _cases() -> list[object]:
    return [
        pytest.param(
            encoding, table.name, place, id=f"{table.name}-{encoding}-{place}", marks=_marks(table.name, encoding)
        )
        for table, encoding, place in product(TABLES, ENCODINGS, ("output", "snapshot"))
    ]


def _marks(table: str, encoding: str) -> list[pytest.MarkDecorator]:
    """A difference that is mended makes its test fail, until the page says so."""
    stated = STATED[table, encoding]
    return [] if stated == "equal" else [pytest.mark.xfail(strict=True, reason=stated)]


@pytest.mark.parametrize(("encoding", "table", "place"), _cases())
def test_a_table_is_equal(story: Story, encoding: str, table: str, place: str) -> None:
    """Every row and column of `SELECT *`, and no other row."""
    result = story.results[encoding, table, place]
    assert result.difference.is_equal, str(result.difference)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_records_without_a_key_are_dead_letters(story: Story, encoding: str) -> None:
    """Each change of the table without a key, and no other but the numbers that are known.

    Connect has sent some of them twice: it was killed.
    """
    letters = story.dead_letters(encoding)
    lost = {"keyless"} if STATED["floats", encoding] == "equal" else {"keyless", "floats"}
    assert set(letters) == lost
    assert letters["keyless"] >= KEYLESS_CHANGES
