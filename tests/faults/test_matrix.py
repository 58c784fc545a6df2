"""The table of fault and step: results survive their file, and go between the document's markers."""

from __future__ import annotations

from pathlib import Path

import pytest

from compactor.failpoints import STEPS
from connectors.dev.revision import UNKNOWN
from tests.faults.matrix import (
    BEGIN,
    END,
    FAILED,
    GO_ON,
    MANY,
    VARIABLE,
    Result,
    append,
    commits,
    keep,
    left_out,
    read,
    table,
    valid,
    written,
)

pytestmark = pytest.mark.selected

KILLED = Result(fault="SIGKILL", step="publish.sent", outcome="went on", seconds_to_recover=8.04, seed=3)
OLD = "1111111"
NEW = "2222222"
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
    assert once.endswith(f"|\n\nAll at unknown.\n\n{END}\nafter\n")
    assert written(once, [AWAY]) == once
    with pytest.raises(ValueError, match="no lines"):
        written("no markers", [AWAY])


def at(commit: str, fault: str, step: str, outcome: str = "went on") -> Result:
    return Result(fault=fault, step=step, outcome=outcome, commit=commit)


def test_it_is_said_which_cells_ran_at_another_commit() -> None:
    """The commonest commit is named once; the last result of a cell counts."""
    ran = [at(OLD, "error", "a"), at(OLD, "error", "b"), at(NEW, "kill", "a"), at(NEW, "error", "b")]
    assert commits(ran[:2]) == f"All at {OLD}."
    assert commits(ran) == f"All at {NEW} but: at {OLD} *error* (a)."
    assert commits([]) == ""


def test_what_ran_at_this_commit_is_kept(tmp_path: Path) -> None:
    """Not what failed last, nor what ran at another commit; nothing where it is not known what ran."""
    file = tmp_path / "results.jsonl"
    keep(file, NEW)
    ran = [at(NEW, "error", "a"), at(OLD, "error", "b"), at(NEW, "kill", "a"), at(NEW, "kill", "a", f"{FAILED}: x")]
    for one in ran:
        append(file, one)
    keep(file, NEW)
    assert read(file) == ran[:1]
    assert valid([at(f"{NEW}+", "error", "a")], f"{NEW}+") == []
    assert valid([at(UNKNOWN, "error", "a")], UNKNOWN) == []


def test_a_run_that_goes_on_leaves_out_what_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only where that is asked for, and at the commit of the results."""
    file = tmp_path / "results.jsonl"
    append(file, at(NEW, "error", "a"))
    monkeypatch.setenv(VARIABLE, str(file))
    monkeypatch.delenv(GO_ON, raising=False)  # where these tests themselves go on
    assert left_out(NEW) == frozenset()
    monkeypatch.setenv(GO_ON, "1")
    assert left_out(NEW) == {("error", "a")}
    assert left_out(OLD) == frozenset()
