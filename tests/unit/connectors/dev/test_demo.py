from __future__ import annotations

import csv
import io
import json
import re
import shutil
import zipfile
from pathlib import Path

import duckdb
import msgspec
import pytest

from connectors.cli.commands.demo import own_folder
from connectors.config.files import load_connector, load_worker
from connectors.dev.demo import data, steps
from connectors.dev.demo.folder import DemoFolder, shown
from connectors.dev.demo.named_table import QueryAnswer, carriers, name_table
from connectors.dev.demo.report import report
from connectors.dev.demo.steps import DemoRun, Snapshot, TopicCount, newest_snapshot
from connectors.errors import ConfigError
from tests.support.cli import ROOT, invoke
from tests.support.clocks import ManualClock


def test_flights_come_in_the_order_of_time_hour_and_row() -> None:
    """All of them, keyed by tail number, `NA` as null, numbers as numbers: what Python's own csv module reads."""
    with zipfile.ZipFile(data.csv_archive()) as archive, archive.open("flights.csv") as member:
        rows = sorted(csv.DictReader(io.TextIOWrapper(member, "utf-8")), key=lambda row: row["time_hour"])
    texts = {"carrier", "tailnum", "origin", "dest", "time_hour"}
    count = 0
    for row, flight in zip(rows, data.flights(), strict=True):
        expected = {name: None if text == "NA" else text if name in texts else int(text) for name, text in row.items()}
        assert msgspec.json.decode(flight.value) == expected
        assert flight.key == (None if row["tailnum"] == "NA" else row["tailnum"].encode())
        count += 1
    assert count == data.FLIGHTS == 336_776


def test_a_flights_timestamp_is_its_hour() -> None:
    """In ms, UTC: 2013-01-01T10:00:00Z."""
    assert next(data.flights()).timestamp_ms == 1_357_034_400_000


def test_the_missing_data_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the extra to install."""
    monkeypatch.setattr(data, "PACKAGE", "nothing_of_this_name")
    with pytest.raises(ConfigError, match="nothing_of_this_name is not installed") as caught:
        data.csv_archive()
    assert "keyfold[demo]" in caught.value.action


def test_the_demos_files_are_valid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The project's worker and connector file, with the demo's broker and folders, pass every check."""
    monkeypatch.delenv("KEYFOLD_BOOTSTRAP_SERVERS", raising=False)
    folder = DemoFolder(tmp_path / "demo")
    folder.make_anew()
    folder.write_files("127.0.0.1:29092")
    worker = load_worker(folder.worker_file)
    connector = load_connector(folder.connector_file, worker).config
    assert (worker.bootstrap_servers, worker.storage_path) == ("127.0.0.1:29092", folder.storage)
    assert (connector.name, connector.output_topic("flights")) == (steps.CONNECTOR, steps.OUTPUT)
    assert (connector.dead_letter_topic, connector.snapshot_location) == (steps.DEAD_LETTERS, str(folder.snapshots))


def test_the_folder_is_made_anew(tmp_path: Path) -> None:
    """Nothing of an earlier demo is left."""
    folder = DemoFolder(tmp_path / "demo")
    folder.make_anew()
    (folder.root / "old").touch()
    folder.make_anew()
    assert not (folder.root / "old").exists()


def test_a_folder_of_something_else_is_never_removed(tmp_path: Path) -> None:
    """--dir with somebody's files is refused, and they are still there."""
    (tmp_path / "thesis.txt").touch()
    result = invoke("demo", "--dir", tmp_path)
    assert result.exit_code == 3
    assert "no demo made it" in result.stderr
    assert result.stderr.startswith("demo: a broker of its own"), "It says at once what it does."
    assert (tmp_path / "thesis.txt").exists()


def test_each_step_is_named_as_it_begins() -> None:
    """A person who waits for one knows for what, and how many are left."""
    told: list[str] = []
    timer = steps.Timer(ManualClock(), told.append)
    for number, name in enumerate(steps.STEPS, start=1):
        with timer.step(name):
            assert told[number - 1 :] == [f"demo, step {number} of 5: {name}"]
    assert list(timer.seconds) == list(steps.STEPS)


def test_paths_are_shown_as_a_person_types_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the current folder where they are below it."""
    monkeypatch.chdir(tmp_path)
    assert shown(tmp_path / ".demo" / "kafka") == ".demo/kafka"
    assert shown(Path("/")) == "/"
    (tmp_path / ".venv/bin").mkdir(parents=True)
    (tmp_path / ".venv/bin/keyfold").touch()
    assert own_folder(str(tmp_path / ".venv/bin/keyfold")) == Path(".venv/bin")
    assert own_folder("-m") == Path(".venv/bin")
    (tmp_path / "a venv").mkdir()
    (tmp_path / "a venv/keyfold").touch()
    assert own_folder(str(tmp_path / "a venv/keyfold")) == Path("a venv")


def _snapshot(folder: Path) -> Snapshot:
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = folder / "flights/flights/20261121T023000Z-ab"
    (path / "data").mkdir(parents=True)
    times = pa.array([1_357_034_400_000, 1_357_038_000_000, 0], pa.timestamp("ms", "UTC"))
    pq.write_table(pa.table({"carrier": ["UA", "UA", "DL"], "_timestamp": times}), path / "data/a.parquet")
    (path / "_manifest.json").write_text(json.dumps({"records": 3, "files": [{}]}))
    (path.parent / "LATEST").write_text(f"{path.name}\n")
    return Snapshot(path, 3, 1)


def test_the_newest_snapshot_is_the_one_that_latest_names(tmp_path: Path) -> None:
    """With what its manifest promises."""
    made = _snapshot(tmp_path)
    assert newest_snapshot(tmp_path, "flights", "flights") == made


def _named(snapshot: Snapshot, folder: Path) -> Path:
    """DuckDB's file with the name of the table, once `current` leads to the snapshot."""
    current = snapshot.path.parent / "current"
    current.symlink_to(snapshot.path / "data")
    name_table(folder / "flights.duckdb", current)
    return folder / "flights.duckdb"


def test_the_table_is_in_a_folder_of_any_name(tmp_path: Path) -> None:
    """A quote does not end the text of SQL, and brackets and stars are no pattern."""
    folder = tmp_path / "it's [1] *?"
    assert carriers(_named(_snapshot(folder), folder)).rows[0][:2] == ("UA", 2)


def test_the_name_stands_for_the_newest_snapshot(tmp_path: Path) -> None:
    """Also for one that is taken later: it is a view of what `current` leads to, and no copy."""
    first = _snapshot(tmp_path)
    database = _named(first, tmp_path)
    newer = first.path.with_name("newer")
    shutil.copytree(first.path / "data", newer / "data")
    shutil.copy(newer / "data/a.parquet", newer / "data/b.parquet")
    (first.path.parent / "current").unlink()
    (first.path.parent / "current").symlink_to(newer / "data")
    shutil.rmtree(first.path)
    assert carriers(database).rows[0][:2] == ("UA", 4)


def test_any_duckdb_since_1_0_opens_the_file(tmp_path: Path) -> None:
    """By itself DuckDB writes files that only versions as new as it open."""
    with duckdb.connect(_named(_snapshot(tmp_path), tmp_path), read_only=True) as connection:
        said = connection.execute("SELECT tags FROM duckdb_databases() WHERE database_name = 'flights'").fetchone()
    assert said is not None
    assert said[0]["storage_version"].startswith("v1.0.0")


def test_the_query_counts_aircraft_by_carrier(tmp_path: Path) -> None:
    """Most aircraft first, with the hour of the last flight in UTC."""
    answer = carriers(_named(_snapshot(tmp_path), tmp_path))
    assert answer.rows == [("UA", 2, "2013-01-01T11:00Z"), ("DL", 1, "1970-01-01T00:00Z")]


def test_the_report_tells_everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What went in and out, the times, the snapshot, the query, and the two commands."""
    monkeypatch.chdir(tmp_path)
    folder = DemoFolder(Path(".demo"))
    outcome = DemoRun(
        bootstrap="127.0.0.1:29092",
        loaded=336_776,
        output=TopicCount(4_050, 7, 4_043),
        dead_letters=TopicCount(2_512, 0, 0),
        snapshot=Snapshot(tmp_path / ".demo/snapshots/flights/flights/x", 4_043, 4),
        answer=QueryAnswer(["carrier"], [("UA",)]),
        seconds={"start the broker": 5.0, "keyfold run --once": 20.25},
    )
    told = report(outcome, folder, Path(".venv/bin"))
    for part in ("336,776", "4,050", "4,043", "2,512", "20.25", "25.25", "FROM flights", "CARRIER"):
        assert part in told
    commands, table = told.split("Snapshot: .demo/snapshots/flights/flights/x")
    assert commands.splitlines()[-3:] == [
        "  .venv/bin/keyfold kafka --port 29092 --data-dir .demo/kafka",
        "  .venv/bin/keyfold tail flights.compacted --worker .demo/worker.json --from-beginning --max 5",
        "",
    ]
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    lines = re.findall(r"(?m)^    (\S+/pip install duckdb-cli|\S+/duckdb .*)$", readme)
    assert "".join(f"  {line}\n" for line in lines) in table
    assert len(lines) == 2
    assert "  'a venv/keyfold' kafka --port" in report(outcome, folder, Path("a venv"))


@pytest.mark.parametrize(("code", "ends_with", "how"), [(3, 3, "exit code 3"), (-9, 1, "SIGKILL")])
def test_the_demo_ends_as_its_connector_did(code: int, ends_with: int, how: str) -> None:
    """With its exit code; 1 where a signal ended it, which is named."""
    error = steps.RunFailedError(code)
    assert error.code == ends_with
    assert how in error.message


def test_a_copied_keyfold_says_what_runs_the_demo(tmp_path: Path) -> None:
    """Its own folder has no configs, and the folder that it runs in, which may be a clone's, is not asked."""
    with pytest.raises(ConfigError, match="comes without it") as caught:
        DemoFolder(tmp_path).write_files("127.0.0.1:9092", tmp_path / "configs")
    assert "make demo" in caught.value.action
