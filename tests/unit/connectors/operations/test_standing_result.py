"""What a command has done before an error ended it is told."""

from __future__ import annotations

from contextlib import suppress
from typing import Any
from unittest.mock import Mock

import pytest

from compactor.errors import KeyfoldError, OffsetChangeError, OutcomeUnknownError
from connectors.errors import UnreachableError
from connectors.operations.offsets import carry_out
from connectors.operations.standing_result import STANDS, told
from connectors.runtime.offset_change import MAY_BE_DONE, ChangedLog

CHANGED = ChangedLog(topic="t", partition=0, offset=3, generation=2)


def run(changer: Any, after: Exception | None = None) -> list[object]:
    """Changes offsets, then raises `after`; returns what was reported until the error, if there is one."""
    reported, changed = list[object](), list[ChangedLog]()
    with suppress(KeyfoldError), told(changed, reported.append):
        carry_out(changer, Mock(), 0, changed)
        if after is not None:
            raise after
    return reported


@pytest.mark.parametrize("in_change", [True, False], ids=["G4 fails", "T3 fails"])
def test_a_change_that_stands_is_reported_before_the_error(in_change: bool) -> None:
    """The error keeps its kind, by which the command ends, and says that the change stands."""
    away = UnreachableError("No answer.", "Ask again.")
    changer = Mock(changed=(CHANGED,), is_in_doubt=False)
    changer.change.side_effect = away if in_change else None
    assert run(changer, away) == [(CHANGED,)]
    assert away.action == f"{STANDS} Ask again."


def test_what_changed_nothing_reports_nothing() -> None:
    """The error alone says why."""
    changer = Mock(changed=None, is_in_doubt=False)
    changer.change.side_effect = error = OffsetChangeError("Keys would be given up.", "Ask again.")
    assert run(changer) == []
    assert str(error) == "Keys would be given up. Ask again."


def test_a_change_in_doubt_is_not_denied() -> None:
    """The answer to its commit was lost."""
    changer = Mock(changed=None, is_in_doubt=True)
    changer.change.side_effect = error = OutcomeUnknownError("Whether it was committed is unknown.", "See the store.")
    assert run(changer) == []
    assert str(error) == f"Whether it was committed is unknown. {MAY_BE_DONE} See the store."


def test_what_succeeds_reports_nothing_here() -> None:
    """The command shows its result itself."""
    assert run(Mock(changed=(CHANGED,), is_in_doubt=False)) == []
