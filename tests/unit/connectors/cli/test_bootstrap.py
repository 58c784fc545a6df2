from __future__ import annotations

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from connectors.bootstrap import Change
from connectors.cli.commands.bootstrap import ChangeLine, FieldsChangeLine, change_line
from connectors.terminal_text import readable
from tests.support.cli import execute, worker_file
from tests.support.snapshot_recipes import snapshots, typed_snapshot


@pytest.fixture(scope="module")
def topic(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return snapshots(tmp_path_factory.mktemp("snapshots"))


def _lines(tmp_path: Path, *arguments: object) -> list[dict[str, object]]:
    done = execute("bootstrap", *arguments, "--worker", worker_file(tmp_path))
    assert (done.returncode, done.stderr) == (0, "")
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_the_state_as_lines(topic: Path, tmp_path: Path) -> None:
    """Bytes are base64, or text if that is asked for; no broker is needed."""
    place = {"from": "snapshot", "partition": 0, "offset": 3, "timestamp": 3, "headers": []}
    assert {**place, "key": "YW5u", "value": "YQ=="} in _lines(tmp_path, topic)
    assert {**place, "key": "ann", "value": "a"} in _lines(tmp_path, topic, "--text")


def test_a_typed_state_as_lines(tmp_path: Path) -> None:
    """Columns by their names."""
    paid = {"status": "paid", "total": "12.50", "_rest": None}
    assert paid in [line["fields"] for line in _lines(tmp_path, Path(typed_snapshot(tmp_path)).parents[1])]


def test_a_change_as_a_line() -> None:
    """The record of the output as it is."""
    change = Change(1, 7, 9, b"k", None, (("n", b"\xff"),))
    expected = ChangeLine(partition=1, offset=7, timestamp=9, key=b"k", value=None, headers=(("n", b"\xff"),))
    assert change_line(change, lambda data: data) == expected
    assert change_line(change, readable).key == "k"
    typed = change_line(replace(change, key={"id": 1}, value=b"v", fields={"n": 2}), readable, has_fields=True)
    assert (typed.key, isinstance(typed, FieldsChangeLine) and typed.fields) == ({"id": 1}, {"n": 2})


def test_a_folder_without_snapshots(tmp_path: Path) -> None:
    """It ends with 2, and says which folder to name."""
    done = execute("bootstrap", tmp_path, "--worker", worker_file(tmp_path))
    assert (done.returncode, "There is no snapshot in" in done.stderr) == (2, True)


def test_a_broker_that_is_away(topic: Path, tmp_path: Path) -> None:
    """With --follow the state is printed, then it ends with 4."""
    done = execute("bootstrap", topic, "--follow", "--worker", worker_file(tmp_path))
    assert (done.returncode, len(done.stdout.splitlines())) == (4, 2)


def test_follow_says_what_it_lacks_before_the_state_is_printed(tmp_path: Path) -> None:
    """It ends with an error that names the option, and nothing is on stdout."""
    topic = Path(typed_snapshot(tmp_path)).parents[1]
    manifest = next(topic.glob("*/_manifest.json"))
    manifest.write_text(manifest.read_text().replace('"converters"', '"others"'))
    done = execute("bootstrap", topic, "--follow", "--worker", worker_file(tmp_path))
    assert (done.stdout, "--connector CONNECTOR.json" in done.stderr) == ("", True)
    assert done.returncode != 0
