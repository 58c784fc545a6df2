"""The rules of docs/decisions/0006-scope.md hold in random schedules, and none of them can be left out."""

from __future__ import annotations

from typing import Final

import pytest

from tests.support.scope_model import Flaw, failures

BREAKING: Final = {
    Flaw.NO_ORDER_IN_A_LOG: 6,
    Flaw.AGAINST_ALL: 1,
    Flaw.AGAINST_PUBLISHED: 4,
    Flaw.LOSERS_STAY: 6,
    Flaw.CLEANS_APART: 28,
    Flaw.CLEANS_INSIDE_A_FOLD: 848,
    Flaw.DROPS_OVER_WAITING: 292,
    Flaw.GENERATIONS_APART: 0,
    Flaw.PUBLISHES_BESIDE_HOLD: 103,
    Flaw.RETIRES_OF_OWN_LOG: 4,
    Flaw.SKIPS_INSIDE_A_FOLD: 62,
}
"""The first schedule that each flaw breaks. After a change of the model, `failures` finds others."""


def test_the_rules_hold() -> None:
    """A reader and a reader of a snapshot have the winner of each key, whenever no fold of the topic is under way."""
    assert list(failures(None, range(200))) == []


@pytest.mark.parametrize("flaw", list(Flaw))
def test_no_rule_can_be_left_out(flaw: Flaw) -> None:
    """Without any one of the rules a schedule breaks a promise, which all of them together keep."""
    seed = BREAKING[flaw]
    assert [broken for broken, _ in failures(flaw, [seed])] == [seed]
    assert list(failures(None, [seed])) == []
