"""The table of fault and step: results survive their file, and go between the document's markers."""

from __future__ import annotations

from pathlib import Path

import pytest

from compactor.failpoints import STEPS
from tests.faults.matrix import BEGIN, END, MANY, Result, append, read, table, written

pytestmark = pytest.mark.selected

KILLED = Result(fault="SIGKILL", step="publish.sent", outcome="went on", seconds_to_recover=8.04, seed=3)
AWAY = Result(fault="broker away 60 s", step="any time", outcome="waited")


def test_results_survive_their_file(tmp_path: Path) -> None:
    """What was appended is read back in its order."""
    file = tmp_path / "deep" / "results.jsonl"
    assert read(file) == []
    append(file, KILLED)
    append(file, AWAY)
    assert read(file) == [KILLED, AWAY]


def test_steps_are_rows_and_faults_are_columns() -> None:
    """Steps stand in the protocol's order, the newest result counts."""
    killed = [Result(fault="SIGKILL", step=step, outcome="went on") for step in reversed([*STEPS][:MANY])]
    lines = table([*killed, Result(fault="SIGKILL", step="source.plan", outcome="LOST")]).splitlines()
    assert lines[0] == "| step | SIGKILL |"
    assert lines[2:4] == ["| `source.plan` | LOST |", "| `source.read` | went on |"]
    assert len(lines) == 2 + MANY


def test_faults_of_few_steps_are_a_list() -> None:
    """Each says when, what came of it, and the seconds; what would break the table is replaced."""
    lines = table([KILLED, AWAY, Result(fault="odd", step="x", outcome="a|b")]).splitlines()
    assert lines[2] == "| SIGKILL | publish.sent | went on, 8.0 |"
    assert lines[3:] == ["| broker away 60 s | any time | waited |", "| odd | x | a/b |"]


def test_the_table_goes_between_the_markers() -> None:
    """What stands around the markers stays; a second run replaces the first; without markers it is an error."""
    once = written(f"before\n{BEGIN}\nold\n{END}\nafter\n", [AWAY])
    assert once.startswith(f"before\n{BEGIN}\n\n| fault |")
    assert once.endswith(f"|\n\n{END}\nafter\n")
    assert written(once, [AWAY]) == once
    with pytest.raises(ValueError, match="no lines"):
        written("no markers", [AWAY])
