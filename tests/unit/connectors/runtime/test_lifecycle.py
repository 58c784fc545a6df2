"""What becomes of a connector's runs: every target, state and event."""

from __future__ import annotations

from itertools import product
from textwrap import dedent

import pytest

from connectors.runtime import lifecycle
from connectors.runtime.lifecycle import RunEffect, RunEvent, RunState, TargetState, transition
from tests.support.cli import ROOT

# A row a state, a column an event: the next state, and the effect. An empty cell changes nothing.
TABLE = """
            | START              | RESTART              | UP           | PAUSED      | DUE
 INIT       | STARTING BEGIN_RUN |                      |              |             |
 STARTING   |                    | RESTARTING END_RUN   | RUNNING NONE | PAUSED NONE |
 RUNNING    |                    | RESTARTING END_RUN   |              | PAUSED NONE |
 PAUSED     |                    | RESTARTING END_RUN   | RUNNING NONE |             |
 RESTARTING |                    | RESTARTING END_RUN   |              |             | STARTING BEGIN_AGAIN
 WAITING    |                    | RESTARTING END_RUN   |              |             | STARTING BEGIN_AGAIN
 FAILED     |                    | RESTARTING END_RUN   |              |             | STARTING BEGIN_AGAIN
 STOPPING   |                    | STOPPING END_RUN     |              |             | ENDED SHOW_STOPPED
 ENDED      |                    |                      |              |             |

            | DONE                 | GO_ON                | RETRIABLE            | FATAL
 INIT       |                      |                      |                      |
 STARTING   | ENDED SHOW_STOPPED   | STARTING BEGIN_RUN   | WAITING SHOW_FAILURE | FAILED SHOW_FAILURE
 RUNNING    | ENDED SHOW_STOPPED   | STARTING BEGIN_RUN   | WAITING SHOW_FAILURE | FAILED SHOW_FAILURE
 PAUSED     | ENDED SHOW_STOPPED   | STARTING BEGIN_RUN   | WAITING SHOW_FAILURE | FAILED SHOW_FAILURE
 RESTARTING | STARTING BEGIN_AGAIN | STARTING BEGIN_AGAIN | STARTING BEGIN_AGAIN | STARTING BEGIN_AGAIN
 WAITING    |                      |                      |                      |
 FAILED     |                      |                      |                      |
 STOPPING   | ENDED SHOW_STOPPED   | ENDED SHOW_STOPPED   | ENDED SHOW_STOPPED   | ENDED SHOW_STOPPED
 ENDED      |                      |                      |                      |

            | LAST                 | FENCED              | NOT_STARTED
 INIT       | ENDED SHOW_FAILURE   | ENDED SHOW_FAILURE  |
 STARTING   | ENDED SHOW_FAILURE   | ENDED SHOW_FAILURE  | INIT NONE
 RUNNING    | ENDED SHOW_FAILURE   | ENDED SHOW_FAILURE  |
 PAUSED     | ENDED SHOW_FAILURE   | ENDED SHOW_FAILURE  |
 RESTARTING | STARTING BEGIN_AGAIN | ENDED SHOW_FAILURE  |
 WAITING    |                      | ENDED SHOW_FAILURE  |
 FAILED     |                      | ENDED SHOW_FAILURE  |
 STOPPING   | ENDED SHOW_STOPPED   | ENDED SHOW_FAILURE  |
 ENDED      |                      |                     |
"""
# The same for the event TARGET; a column a target.
TARGETS = """
            | RUNNING               | PAUSED               | STOPPED
 INIT       |                       |                      | ENDED END_RUN
 STARTING   | STARTING RESUME_RUN   | STARTING PAUSE_RUN   | STOPPING END_RUN
 RUNNING    | RUNNING RESUME_RUN    | RUNNING PAUSE_RUN    | STOPPING END_RUN
 PAUSED     | PAUSED RESUME_RUN     | PAUSED PAUSE_RUN     | STOPPING END_RUN
 RESTARTING | RESTARTING RESUME_RUN | RESTARTING PAUSE_RUN | STOPPING END_RUN
 WAITING    |                       |                      | STOPPING END_RUN
 FAILED     |                       |                      | ENDED END_RUN
 STOPPING   |                       |                      | STOPPING END_RUN
 ENDED      |                       |                      |
"""
Cells = dict[tuple[str, str], tuple[RunState, RunEffect]]


def _cells(text: str) -> Cells:
    """Returns the cells of such tables by row and column."""
    cells: Cells = {}
    for table in text.strip("\n").split("\n\n"):
        head, *rows = [[cell.strip() for cell in line.split("|")] for line in table.splitlines()]
        for row in rows:
            for column, cell in zip(head[1:], row[1:], strict=True):
                state, effect = cell.split() or (row[0], "NONE")
                cells[row[0], column] = RunState[state], RunEffect[effect]
    return cells


@pytest.mark.parametrize("target", TargetState)
def test_every_event_in_every_state(target: TargetState) -> None:
    """Only the event TARGET looks at the target; a cell for each of the others is in the table."""
    cells = _cells(TABLE)
    assert len(cells) == len(RunState) * (len(RunEvent) - 1)
    for (state, event), step in cells.items():
        assert transition(target, RunState[state], RunEvent[event]) == step, (state, event)


def test_every_target_in_every_state() -> None:
    """A connector pauses and runs on in its run, and stops from any state."""
    cells = _cells(TARGETS)
    assert len(cells) == len(RunState) * len(TargetState)
    for (state, target), step in cells.items():
        assert transition(TargetState[target], RunState[state], RunEvent.TARGET) == step, (state, target)


def test_a_connector_that_stops_never_runs_again() -> None:
    """Whatever happens, and whatever the target is by then: another supervisor begins what is wanted later."""
    for target, state, event in product(TargetState, (RunState.STOPPING, RunState.ENDED), RunEvent):
        after, effect = transition(target, state, event)
        assert after in (RunState.STOPPING, RunState.ENDED)
        assert effect not in (RunEffect.BEGIN_RUN, RunEffect.BEGIN_AGAIN)


def test_a_run_begins_in_the_state_starting_alone() -> None:
    """Each of its stop tokens is made with that transition, so that a stop that comes later finds it."""
    for target, state, event in product(TargetState, RunState, RunEvent):
        after, effect = transition(target, state, event)
        if effect in (RunEffect.BEGIN_RUN, RunEffect.BEGIN_AGAIN):
            assert after is RunState.STARTING


def test_the_module_and_the_page_have_one_drawing() -> None:
    """What follows what is drawn for who reads the code, and for who reads how keyfold is built."""
    drawn = "\n\n".join(part for part in str(lifecycle.__doc__).split("\n\n") if part.startswith("    "))
    page = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")
    assert "INIT" in drawn
    assert f"```\n{dedent(drawn)}\n" in page
