"""The demo as a person runs it; what came out is held against the CSV itself, read with Python's own csv module."""

from __future__ import annotations

import csv
import io
import json
import re
import shlex
import subprocess
import zipfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import pytest

from connectors.dev.demo.data import csv_archive
from connectors.dev.demo.steps import STEPS
from tests.support.cli import ROOT, command, environment, execute, write_json
from tests.support.deployment import Process
from tests.support.kafka import Read, consume_all

pytestmark = pytest.mark.timeout(420)
TEXTS = {"carrier", "tailnum", "origin", "dest", "time_hour"}


class Demo(NamedTuple):
    """A demo that has run, its broker started again by the command that it printed."""

    root: Path
    report: str
    log: str
    bootstrap: str


def _rows() -> list[dict[str, str]]:
    with zipfile.ZipFile(csv_archive()) as archive, archive.open("flights.csv") as member:
        return sorted(csv.DictReader(io.TextIOWrapper(member, "utf-8")), key=lambda row: row["time_hour"])


def _value(row: dict[str, str]) -> dict[str, Any]:
    return {name: None if text == "NA" else text if name in TEXTS else int(text) for name, text in row.items()}


@pytest.fixture(scope="module")
def last_flights() -> dict[bytes, dict[str, Any]]:
    """Tail number → the aircraft's last flight in the CSV, by time_hour, then by row."""
    last = {row["tailnum"]: row for row in _rows() if row["tailnum"] != "NA"}
    return {tail.encode(): _value(row) for tail, row in last.items()}


def _printed(report: str, name: str) -> list[str]:
    """The arguments of the printed command `… keyfold NAME …`."""
    line = next(line for line in report.splitlines() if f"keyfold {name} " in line)
    return shlex.split(line)[1:]


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    """Runs the demo once, then its broker again."""
    folder = tmp_path_factory.mktemp("demo")
    done = subprocess.run(
        command("demo"), cwd=folder, env=environment(), capture_output=True, text=True, check=False, timeout=360
    )
    assert done.returncode == 0, done.stderr
    broker = command(*_printed(done.stdout, "kafka"))
    with subprocess.Popen(broker, cwd=folder, env=environment(), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        said = process.stdout.readline()
        try:
            assert said.startswith("listening on ")
            yield Demo(folder / ".demo", done.stdout, done.stderr, said.removeprefix("listening on ").strip())
        finally:
            process.terminate()
            process.wait(60)


def _latest(records: list[Read]) -> dict[bytes | None, Any]:
    return {record.key: json.loads(record.value) for record in records if record.value is not None}


def test_the_demo_names_each_step(demo: Demo) -> None:
    """On stderr, also if that is no terminal, in their order."""
    said = re.findall(r"(?m)^demo, step (\d) of 5: (.*)$", demo.log)
    assert said == [(str(number), name) for number, name in enumerate(STEPS, start=1)]


def test_the_output_topic_ends_with_each_aircrafts_last_flight(
    demo: Demo, last_flights: dict[bytes, dict[str, Any]]
) -> None:
    """Every one of the 4,043, for a read_committed reader, and no other key."""
    assert len(last_flights) == 4_043
    assert _latest(consume_all(demo.bootstrap, "flights.compacted")) == last_flights


def test_the_backlog_is_on_the_output_once(demo: Demo) -> None:
    """A fresh output has each key once: the backlog is folded before it is published."""
    keys = [record.key for record in consume_all(demo.bootstrap, "flights.compacted")]
    assert len(keys) == len(set(keys)) == 4_043


def test_the_snapshot_holds_each_aircrafts_last_flight(demo: Demo, last_flights: dict[bytes, dict[str, Any]]) -> None:
    """Read by DuckDB from the files that LATEST names, each key once, as its manifest says."""
    topic = demo.root / "snapshots/flights/flights"
    folder = topic / (topic / "LATEST").read_text(encoding="utf-8").strip()
    names = list(next(iter(last_flights.values())))
    rows = duckdb.execute(f"SELECT _key, {', '.join(names)} FROM '{folder}/data/*.parquet'").fetchall()
    said = json.loads((folder / "_manifest.json").read_text(encoding="utf-8"))
    assert said["records"] == len(rows) == 4_043
    assert said["typed"]["unplaced"] == {}
    assert {key: dict(zip(names, values, strict=True)) for key, *values in rows} == last_flights


def test_the_line_of_the_readme(
    demo: Demo, last_flights: dict[bytes, dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The line that README.md shows first opens the table by its name, from the folder in which the demo has run."""
    (line,) = re.findall(r"(?m)^    (\S+/duckdb .*)$", (ROOT / "README.md").read_text(encoding="utf-8"))
    assert re.sub(r"^\S+/", "/", line) in demo.report, "The folder of the command is that of this test's Python."
    _, file, query = shlex.split(line)
    monkeypatch.chdir(demo.root.parent)
    with duckdb.connect(file, read_only=True) as connection:
        counted = dict(connection.execute(query).fetchall())
    assert counted == Counter(flight["carrier"] for flight in last_flights.values())


def _comparable(report: str) -> list[str]:
    """Returns the lines of a report without what differs from run to run: seconds, port, folder and snapshot."""
    text = re.sub(r"\S*/(keyfold|pip|duckdb) ", r"\1 ", report)
    text = re.sub(r"\d+\.\d\d\b|--port \d+|\d{8}T\d{6}Z-\w+", "…", text)
    return [" ".join(line.split()) for line in text.strip().splitlines()]


def test_the_start_page_shows_what_the_demo_prints(demo: Demo) -> None:
    """docs/start.md has its report as it is, but for what differs from run to run."""
    page = (ROOT / "docs" / "start.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r"```text\n(Flights.*?)```", page, re.DOTALL)
    assert _comparable(shown) == _comparable(demo.report)


@pytest.mark.long  # test_restore.py: a restored topic compacts to an equal snapshot
def test_a_restored_demo_compacts_to_an_equal_snapshot(demo: Demo) -> None:
    """No aircraft differs between the demo's snapshot and that of the topic which it was restored to."""
    folder, worker, topic = demo.root / "snapshots" / "flights" / "flights", demo.root / "worker.json", "flights.again"
    restored = execute("restore", folder, "--topic", topic, "--create", "--worker", worker, "--json")
    assert (restored.returncode, json.loads(restored.stdout)["sent"]) == (0, 4_043), restored.stderr
    settings = json.loads((demo.root / "flights.json").read_text(encoding="utf-8"))
    again = write_json(demo.root / "again.json", {**settings, "name": "again", "topics": topic})
    with Process(["run", str(again), "--worker", str(worker), "--once"], demo.root / "again.log", {}) as run:
        assert run.wait() == 0, run.tail()
    both = execute("snapshot", "diff", folder, demo.root / "snapshots" / "again" / topic, "--json")
    said = json.loads(both.stdout)
    assert [said[name] for name in ("added", "changed", "removed", "same")] == [0, 0, 0, 4_043]


def test_flights_without_a_tail_number_are_dead_letters(demo: Demo) -> None:
    """All 2,512 of them, with the bytes that they had."""
    expected = sorted(json.dumps(_value(row), sort_keys=True) for row in _rows() if row["tailnum"] == "NA")
    letters = consume_all(demo.bootstrap, "flights.dead")
    found = sorted(json.dumps(json.loads(letter.value or b""), sort_keys=True) for letter in letters)
    assert len(found) == 2_512
    assert found == expected
    assert {letter.key for letter in letters} == {None}


def test_the_report_has_the_numbers(demo: Demo) -> None:
    """What went in and came out, how long it took, where the snapshot is, and the query's answer."""
    for part in ("336,776", "4,043", "2,512", "SECONDS", "Snapshot: .demo/snapshots/flights/flights/", "LAST_SEEN"):
        assert part in demo.report


def test_progress_is_shown_in_plain_lines(demo: Demo) -> None:
    """Without a terminal the loading is told in log lines on stderr."""
    assert "stage=load" in demo.log


def test_the_printed_tail_shows_the_output(demo: Demo) -> None:
    """The second command that the demo prints gives five records of the compacted topic."""
    done = execute(*_printed(demo.report, "tail"), cwd=demo.root.parent)
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(lines) == 5
    assert all(json.loads(line["value"])["tailnum"] == line["key"] for line in lines)


def test_describe_knows_the_demos_connector(demo: Demo) -> None:
    """Beside the broker that runs again: everything is published, nothing lags behind."""
    files = demo.root / "flights.json", "--worker", demo.root / "worker.json"
    described = json.loads(execute("describe", *files, "--json").stdout)
    assert [partition["lag"] for partition in described["partitions"]] == [0, 0, 0, 0]
    assert sum(partition["records"] for partition in described["partitions"]) == 4_043
