"""The benchmarks' results file, and the tables, plots and quick ratios made of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from benchmarks import quick
from benchmarks.harness import plots
from benchmarks.harness.page import BEGIN, END, filled
from benchmarks.harness.process import Used
from benchmarks.harness.results import Machine, Measured, Results, Run, load, save
from benchmarks.harness.row import Measurement, by_id
from benchmarks.harness.table import report, table
from benchmarks.quick import Limits
from benchmarks.rows.keys import FOLD_RATE, GROWTH, KEYS_IN_LIMIT, LIMIT_BYTES, Point, costs, growth, values
from benchmarks.rows.registry import COMPARISONS, MEASUREMENTS, PAGE, minutes_of
from benchmarks.rows.whole_run import Phase, WholeRun

MACHINE = Machine(cores=2, memory_bytes=1 << 33, system="a", python="b", pyspark="c", librdkafka="d")
ROW = COMPARISONS["backlog"]


def runs(row: str, program: str, start: float, seconds: float) -> list[Run]:
    """Returns a start and a run on a thousand records."""
    return [
        Run(
            row=row, program=program, round=1, records=records, used=Used(took, 1.0, 1 << 30, 1 << 29),
            start=records == 2,
        )
        for records, took in ((2, start), (1000, seconds))
    ]  # fmt: skip


def results(ours: float = 11.0, other: float = 25.0) -> Results:
    return Results(
        machine=MACHINE,
        runs=[*runs(ROW.id, ROW.ours.name, 10.0, ours), *runs(ROW.id, ROW.other.name, 5.0, other)],
        measured=[Measured(figure="ready", round=1, values={"first micro-batch, s": 10.0, "published, s": 12.0})],
    )


def nothing(bootstrap: str) -> dict[str, float]:
    return {}


@pytest.mark.parametrize(
    ("ours", "cells"),
    [
        (
            11.0,
            (
                "| ≥ 6 x | 12 x | 10.00 x | 99.00 x | 10.00 "
                "| keyfold: 0.000 M/s, 11.0 s of which the start 10.0 s, processor time 1.0 s, 0.5 GiB "
                "| Kafka Streams: 0.000 M/s, 110.0 s of which the start 11.0 s, processor time 1.0 s, 0.5 GiB |"
            ),
        ),
        (20.0, "| 5.50 x **short** | 9.90 x | 5.50 |"),
        (10.0, "| 11.00 x |  | 11.00 |"),
    ],
)
def test_comparisons(ours: float, cells: str) -> None:
    """A row shows the ratio by both clocks; the must counts by the whole run, from the command on."""
    found = results(ours)
    found.runs[2:] = runs(ROW.id, ROW.other.name, 11.0, 110.0)
    assert cells in table([ROW], [], found)


def test_starts_of_earlier_files() -> None:
    """A run on one record is a start also where the file does not say so."""
    used = Used(3.0, 1.0, 1)
    found = Results(machine=MACHINE, runs=[Run(row="a", program="b", round=1, records=1, used=used)])
    assert (found.start("a", "b"), found.seconds("a", "b")) == (3.0, None)


def test_a_missing_program_has_a_reason() -> None:
    """A row of a program that cannot run here says why."""
    found = Results(machine=MACHINE, missing={ROW.other.name: "there is no JDK"})
    assert "| there is no JDK |" in table([ROW], [], found)


def test_measurements() -> None:
    """Values are compared with the most or least that they may be, or only shown; two stand next to the first one."""
    most = Measurement("one", "most", {"s": (3, 1)}, nothing, beside=("M", "other"))
    least = Measurement("two", "least", {}, nothing, at_least={"M": (50, 200), "other": (0, 2)}, same_as="one")
    found = Results(machine=MACHINE)
    found.measured = [
        Measured(figure="one", round=number, values={"s": s, "M": 40.0, "other": 1.0}) for number, s in ((1, 2), (2, 5))
    ]
    lines = table([], [most, least], found).splitlines()
    assert lines[2:] == [
        "| `one`: most: s | ≤ 3 | 1 | 3.50 **short** |  | 2.00, 5.00 | M: 40 | other: 1 |",
        "| `two`: least: M | ≥ 50 | 200 | 40.00 **short** |  | 40.00, 40.00 |  |  |",
        "| the same: other | shown | 2 | 1.00 |  | 1.00, 1.00 |  |  |",
    ]
    assert {line.count("|") for line in lines} == {9}
    found.measured = []
    assert "| `one`: most: s | ≤ 3 | 1 | not measured |  |  |  |  |" in table([], [most], found)


def test_report() -> None:
    """A report at another scale says so, lists values without a limit, and notes failures by first and last line."""
    found = results()
    found.code = "abc"
    found.scale, found.notes = 0.02, ["row failed:\nTraceback\nRuntimeError: why\n"]
    text = report([ROW], [MEASUREMENTS["ready"]], found)
    assert text.startswith("0.02 times as many records")
    assert "2.27 x" in text
    assert "short" not in text  # of what has to be reached with all records
    assert "\nMeasured at abc.\n" in text
    assert text.endswith("- ready: first micro-batch, s: 10.00\n\n- row failed: RuntimeError: why")


def test_the_page_of_the_results() -> None:
    """The page's table, with the commit it was measured at, takes the place of the one before; nothing else changes."""
    page = f"# Page\n\n{BEGIN}\n\nold\n\n{END}\n\nrest\n"
    assert filled(page, "| new |", "abc") == f"# Page\n\n{BEGIN}\n\nMeasured at abc.\n\n| new |\n\n{END}\n\nrest\n"
    with pytest.raises(ValueError, match="no place for a table"):
        filled("# Page", "| new |", "abc")


def test_minutes_of_rows() -> None:
    """What rows take grows with the rounds, and unknown rows are left out."""
    known = minutes_of(PAGE, 1)
    assert known == PAGE
    assert minutes_of(("ready", "fold", "table"), 3) == {"ready": 3 * PAGE["ready"], "fold": 3 * PAGE["fold"]}


def test_results_are_continued_at_their_scale(tmp_path: Path) -> None:
    """Results are continued at the scale and the commit at which they were measured, and at no other."""
    file = tmp_path / "into" / "results.json"
    found = results()
    found.code = "abc"
    save(file, found)
    assert load(file, 1.0, "abc") == found
    with pytest.raises(ValueError, match="--scale 1"):
        load(file, 0.5, "abc")
    with pytest.raises(ValueError, match="measured at abc, this is abd"):
        load(file, 1.0, "abd")
    with pytest.raises(ValueError, match="--minutes 10"):
        load(file, 1.0, "abc", 30.0)
    for inexact in ("abc+", "unknown"):  # two states of the code may have this name
        save(file, replace(found, code=inexact))
        with pytest.raises(ValueError, match="is no commit"):
            load(file, 1.0, inexact)
    assert load(tmp_path / "none.json", 1.0, "abd").code == "abd"


def test_shared_rounds() -> None:
    """A measurement that shares rounds names one that has rounds of its own and the same function."""
    for one in MEASUREMENTS.values():
        assert MEASUREMENTS[one.source].source == one.source
        assert MEASUREMENTS[one.source].measure is one.measure


def test_keys() -> None:
    """As many keys count as fitted; growth is the cost among most over that among fewest; the slowest fold counts."""
    small, large = Point(1_000_000, 4.0, LIMIT_BYTES), Point(50_000_000, 250.0, LIMIT_BYTES + 1)
    found = values([small, large])
    assert found[KEYS_IN_LIMIT] == 1.0
    assert found[GROWTH] == pytest.approx(1.25)
    assert costs(found) == pytest.approx({1.0: 4.0, 50.0: 5.0})
    assert GROWTH not in values([small])
    assert FOLD_RATE not in found
    assert values([small, large._replace(folds=(5e5, 3e5))])[FOLD_RATE] == 3e5
    assert values([]) == {KEYS_IN_LIMIT: 0.0}
    assert costs(values([Point(1_000_000, -0.1, 1)])) == {}


def test_whole_run() -> None:
    """A run has the memory of its worst phase, and each phase its own rate."""
    phases = [
        Phase(name=name, seconds=seconds, records=1_000, rss=2, pss=pss)
        for name, seconds, pss in (("a", 2.0, 5), ("b", 0.0, 7), ("c", 1.0, 6))
    ]
    found = WholeRun(*phases)
    assert (found.pss, found.seconds) == (7, 3.0)
    assert [one.rate for one in found.phases] == [500.0, 0.0, 1_000.0]


def test_plots(tmp_path: Path) -> None:
    """There is a plot of throughput and one of growth where both were measured, and none of nothing."""
    found = results()
    assert plots.draw([ROW], Results(machine=MACHINE), [], tmp_path) == []
    found.measured = [Measured(figure="keys", round=1, values=values([Point(10**6, 4, 1), Point(10**7, 50, 1)]))]
    assert growth(found) == [(1.0, 4.0), (10.0, 5.0)]
    assert plots.rates([ROW], found) == {"backlog": [("keyfold", pytest.approx(1000 / 11)), ("Kafka Streams", 40.0)]}
    drawn = plots.draw([ROW], found, growth(found), tmp_path)
    assert [one.name for one in drawn] == ["throughput.png", "growth.png"]
    assert all(one.read_bytes().startswith(b"\x89PNG") for one in drawn)


def test_no_plots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Without matplotlib a line is printed instead of plots."""
    monkeypatch.setattr(plots, "find_spec", lambda _: None)
    assert plots.draw([ROW], results(), [], tmp_path) == []
    assert "matplotlib is not installed" in capsys.readouterr().out


def test_quick_ratios() -> None:
    """Quick ratios are of the same runs, a worker's start beside that of Kafka Streams among them.

    A reader of few records is done as soon as it has started, so that its whole time counts, and is a second at least.
    """
    found = results(ours=12.0)
    found.runs += [*runs("reading", "keyfold", 10.0, 12.0), *runs("reading", "reading only", 0.1, 0.5)]
    found.runs += [*runs("backlog-unique", "keyfold", 10.0, 14.0), *runs("backlog-unique", "Kafka Streams", 5.0, 17.0)]
    expected = {"backlog": 10.0, "backlog-unique": 3.0, "reading": 1 / 12, "ready": 0.5}
    assert quick.ratios(found) == pytest.approx(expected)
    assert quick.ratios(Results(machine=MACHINE)) == {}


def test_quick_limits() -> None:
    """A ratio may be worse by the tolerance; one below that, or not measured, is reported."""
    limits = Limits(tolerance=2.0, ratios={"backlog": 8.0, "ready": 0.6})
    assert list(quick.slower({"backlog": 4.0, "ready": 0.3, "new": 1.0}, limits)) == []
    assert list(quick.slower({"backlog": 3.9}, limits)) == [
        "backlog: 3.900 is worse than 4.000, which is 8.000 / 2",
        "ready: not measured",
    ]
    assert "has no ratios" in next(quick.slower({"backlog": 1.0}, Limits(tolerance=2.0, ratios={})))


def test_no_two_rows_have_one_id() -> None:
    """Results are kept by the rows' ids: a second row of an id is refused, in whose place the first never ran."""
    with pytest.raises(ValueError, match=f"two rows are called {MEASUREMENTS['fold'].id}"):
        by_id([MEASUREMENTS["fold"], MEASUREMENTS["table"], MEASUREMENTS["fold"]])
