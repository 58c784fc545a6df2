from __future__ import annotations

import json
import os
from collections.abc import Sequence
from contextlib import redirect_stdout
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from connectors.cli.commands.dump import shows_text
from connectors.errors import UsageError
from connectors.operations.dump import only_topic
from tests.support.cli import connector_file, execute, invoke, keep, row, worker_file

ROWS = [
    row(4, b"k", None, headers=[{"key": "k", "value": b"v"}, {"key": "n", "value": None}], timestamp=1),
    row(5, None, b"x", rejected="null key"),
    row(7, b"\xff\x00", b"value", timestamp_type=1, timestamp=2),
    row(8, b"gone", None, timestamp=3, timestamp_type=-1, delete_horizon=9),
]
LINES = [
    (
        '{"offset":4,"timestamp":1,"timestamp_type":"CreateTime","key":"aw==","value":null,'
        '"headers":[["k","dg=="],["n",null]],"delete_horizon":null}'
    ),
    (
        '{"offset":7,"timestamp":2,"timestamp_type":"LogAppendTime","key":"/wA=","value":"dmFsdWU=",'
        '"headers":[],"delete_horizon":null}'
    ),
    (
        '{"offset":8,"timestamp":3,"timestamp_type":"NoTimestampType","key":"Z29uZQ==","value":null,'
        '"headers":[],"delete_horizon":9}'
    ),
]


def _dump(folder: Path, topic: str = "orders", partition: int = 0, more: Sequence[object] = ()) -> tuple[object, ...]:
    where = "--topic", topic, "--partition", partition, "--worker", worker_file(folder)
    return ("dump", connector_file(folder), *where, *more)


def test_dump_prints_the_kept_log_as_the_interface_says(tmp_path: Path) -> None:
    """One object a line, by offset, fields in their order, bytes as base64; rejected records are left out."""
    keep(tmp_path, ROWS)
    assert invoke(*_dump(tmp_path)).stdout.splitlines() == LINES


def test_dump_is_the_same_in_a_process_of_its_own(tmp_path: Path) -> None:
    """Nothing but the lines is on stdout, nothing at all on stderr."""
    keep(tmp_path, ROWS)
    done = execute(*_dump(tmp_path))
    assert (done.returncode, done.stdout.splitlines(), done.stderr) == (0, LINES, "")


@pytest.mark.parametrize(
    ("more", "offsets"),
    [
        (["--max", 2], [4, 7]),
        (["--max", 9], [4, 7, 8, 9, 10, 11]),
        (["--key", "k"], [4, 9, 11]),
        (["--key", "k", "--max", 2], [4, 9]),
        (["--key", "Zürich"], [10]),
        (["--key", "x"], []),
        (["--key", ""], []),
    ],
)
def test_dump_prints_what_is_asked_for(tmp_path: Path, more: list[object], offsets: list[int]) -> None:
    """--key: only records with that key, which is text; --max: so many at most, of those that are printed."""
    later = [row(9, b"k", b"1"), row(10, "Zürich".encode(), b"1"), row(11, b"k", b"2")]
    keep(tmp_path, [*ROWS, *later])
    shown = invoke(*_dump(tmp_path, more=more)).stdout.splitlines()
    assert [json.loads(line)["offset"] for line in shown] == offsets


def test_dump_of_a_damaged_page_says_how_its_file_comes_back(tmp_path: Path) -> None:
    """It is the same later, so that to try the step again is no next action."""
    keep(tmp_path, ROWS)
    (file,) = tmp_path.glob("**/runs/**/*.parquet")
    data = bytearray(file.read_bytes())
    data[30] ^= 1
    file.write_bytes(data)
    done = invoke(*_dump(tmp_path))
    assert (done.exit_code, "Put the file back from a copy" in done.stderr) == (1, True), done.stderr


@pytest.mark.parametrize(("topic", "partition"), [("orders", 3), ("Orders", 0)])
def test_dump_of_what_is_not_kept_names_what_is(tmp_path: Path, topic: str, partition: int) -> None:
    """Exit code 2, and the partitions that there are."""
    keep(tmp_path, ROWS)
    result = invoke(*_dump(tmp_path, topic, partition))
    assert (result.exit_code, result.stdout) == (2, "")
    assert f"keeps no partition {topic}-{partition}" in result.stderr
    assert "next: It keeps orders-0." in result.stderr


@pytest.mark.parametrize(("told", "readable"), [([], True), (["--base64"], False)])
def test_a_terminal_shows_text_unless_told_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: list[str], *, readable: bool
) -> None:
    """Programs get base64, as ever; who looks at a terminal need not decode it."""
    keep(tmp_path, ROWS)
    base64 = invoke(*_dump(tmp_path, more=["--base64"])).stdout
    text = invoke(*_dump(tmp_path, more=["--text"])).stdout
    monkeypatch.setattr("connectors.cli.commands.dump.shows_text", lambda given: given is None or given)
    assert invoke(*_dump(tmp_path, more=told)).stdout == (text if readable else base64)
    assert text != base64


@pytest.mark.parametrize("told", [None, True, False])
def test_who_looks_at_a_terminal_sees_text(*, told: bool | None) -> None:
    """Whatever kind of terminal it is; a pipe and a file are none, and what is said in the command counts in each."""
    outer, inner = os.openpty()
    reader, writer = os.pipe()
    with os.fdopen(inner, "w") as terminal, os.fdopen(writer, "w") as pipe:
        shown = []
        for out in (terminal, pipe):
            with redirect_stdout(out):
                shown.append(shows_text(told))
    os.close(outer)
    os.close(reader)
    assert shown == ([True, False] if told is None else [told] * 2)


def test_dump_shows_text_to_a_person(tmp_path: Path) -> None:
    """--text: as tail does, so that a key can be found by eye; what is no text stays base64, and says so."""
    keep(tmp_path, ROWS)
    shown = [json.loads(line) for line in invoke(*_dump(tmp_path, more=["--text"])).stdout.splitlines()]
    assert [(one["key"], one["value"]) for one in shown] == [
        ("k", None),
        ({"base64": "/wA="}, "value"),
        ("gone", None),
    ]
    assert shown[0]["headers"] == [["k", "v"], ["n", None]]


def test_the_only_topic_need_not_be_named(tmp_path: Path) -> None:
    """Without --topic; where nothing is kept, that is said."""
    command = ("dump", connector_file(tmp_path), "--partition", 0, "--worker", worker_file(tmp_path))
    result = invoke(*command)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "keeps nothing yet" in result.stderr
    keep(tmp_path, ROWS)
    assert invoke(*command).stdout.splitlines() == LINES


def test_several_topics_are_named_to_choose_one() -> None:
    """A usage error, with the names."""
    state: Any = SimpleNamespace(logs=[SimpleNamespace(topic=topic) for topic in ("b", "a", "b")])
    with pytest.raises(UsageError, match="keeps 2 topics") as caught:
        only_topic(state, "c")
    assert caught.value.action == "Choose one with --topic: a, b."


def test_a_key_is_found_in_its_partition(tmp_path: Path) -> None:
    """Without --partition each is looked through, and stderr says in which one the key is, or that it is in none."""
    keep(tmp_path, ROWS)
    where = "dump", connector_file(tmp_path), "--worker", worker_file(tmp_path)
    found = invoke(*where, "--key", "gone")
    assert (found.stdout.splitlines(), found.stderr) == (LINES[2:], "partition 0:\n")
    absent = invoke(*where, "--key", "nowhere")
    assert (absent.exit_code, absent.stdout, absent.stderr) == (0, "", 'Nothing is kept of "nowhere".\n')
    neither = invoke(*where)
    assert (neither.exit_code, "Neither --partition nor --key" in neither.stderr) == (2, True)
