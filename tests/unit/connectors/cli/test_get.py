from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from compactor.model.actions import Publish
from connectors.cli.commands.get import HOW_KEPT, parsed
from connectors.errors import UsageError
from tests.support.cli import ROOT, connector_file, environment, execute, invoke, keep, row, worker_file

ROWS = [
    row(4, b"a", b"old", timestamp=1),
    row(5, None, b"x", rejected="null key"),
    row(7, b"\xff\x00", b"v", timestamp_type=1, timestamp=2, headers=[{"key": "h", "value": b"1"}]),
    row(8, b"gone", None, timestamp=3, delete_horizon=9),
    row(9, b"a", b"new", timestamp=4),
    row(10, b'{"id":7}', b"json"),
]
PUBLISHED = Publish(topic="orders", partition=0, end=9)


def _get(folder: Path, *more: object) -> Sequence[object]:
    return "get", connector_file(folder), *more, "--worker", worker_file(folder)


def _lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_get_prints_the_latest_record_as_the_interface_says(tmp_path: Path) -> None:
    """One object a line, fields in their order, bytes as base64; and at which offset the answer stands."""
    keep(tmp_path, ROWS, [PUBLISHED])
    assert invoke(*_get(tmp_path, "--hex", "ff00")).stdout == (
        '{"topic":"orders","partition":0,"offset":7,"timestamp":2,"timestamp_type":"LogAppendTime","key":"/wA=",'
        '"value":"dg==","headers":[["h","MQ=="]],"delete_horizon":null,"published":true,"end":11}\n'
    )


def test_get_says_what_is_published_and_until_when_a_tombstone_stays(tmp_path: Path) -> None:
    """Records come in the order of the keys, of each the latest."""
    keep(tmp_path, ROWS, [PUBLISHED])
    records = _lines(invoke(*_get(tmp_path, "gone", "a", "absent", "gone", "--text")).stdout)
    fields = ("key", "offset", "value", "published", "delete_horizon")
    assert [tuple(each[name] for name in fields) for each in records] == [
        ("gone", 8, None, True, 9),
        ("a", 9, "new", False, None),
    ]


def test_the_documentations_example(tmp_path: Path) -> None:
    """The page shows a call and what it prints, line by line."""
    keep(tmp_path, ROWS, [PUBLISHED])
    page = (ROOT / "docs" / "formats.md").read_text(encoding="utf-8").partition("\n### get\n")[2]
    call, *printed = [line.strip() for line in page.partition("\n    ")[2].partition("\n\n")[0].splitlines()]
    command, file, *more = call.split()[1:]
    assert (command, file) == ("get", "orders.json")
    assert invoke(*_get(tmp_path, *more)).stdout.splitlines() == printed


def test_a_json_key_is_looked_up_without_its_spaces(tmp_path: Path) -> None:
    """As keyfold.Json writes it."""
    keep(tmp_path, ROWS)
    (record,) = _lines(invoke(*_get(tmp_path, "--json", '{ "id" : 7 }')).stdout)
    assert record["offset"] == 10


def test_what_is_not_kept_is_said_on_stderr(tmp_path: Path) -> None:
    """By key, in the order of the keys, with exit code 1 as grep has it; on stdout is what there is."""
    keep(tmp_path, ROWS)
    done = execute(*_get(tmp_path, "absent", "a", "\n", "--text"))
    said = f'Nothing is kept of "absent".\nNothing is kept of "\\n".\nnext: {HOW_KEPT}\n'
    assert (done.returncode, len(_lines(done.stdout)), done.stderr) == (1, 1, said)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--hex", "xy"], 'The key "xy" is not in hexadecimal digits.'),
        (["--json", "{"], 'The key "{" is no JSON'),
        (["--hex", "--json", "1"], "--hex and --json stand together."),
        (["a", "--partition", "3"], "Connector orders-keeper keeps no partition 3."),
        (["a", "--topic", "other"], "keeps nothing of topic other.\nnext: It keeps orders-0."),
        (["a", "--topic", "orders", "--partition", "3"], "keeps no partition orders-3."),
    ],
)
def test_what_cannot_be_looked_up_is_an_error_of_usage(tmp_path: Path, more: list[str], message: str) -> None:
    """It says what there is instead."""
    keep(tmp_path, ROWS)
    done = invoke(*_get(tmp_path, *more))
    assert (done.exit_code, message in done.stderr) == (2, True), done.stderr


_SLOW = (
    "pyspark",
    "py4j",
    "pandas",
    "duckdb",
    "fastavro",
    "httpx",
    "fastapi",
    "deltalake",
    "pyiceberg",
    "compactor.engine",
)
"""What takes tenths of a second to import, and no look-up of plain keys needs."""
_AND_SAY_WHAT_IS_LOADED = f"""
import sys
from connectors.cli.entry import main
code = main()
sys.exit(str((code, [name for name in {_SLOW} if name in sys.modules])))
"""


@pytest.mark.parametrize(("key", "code"), [("a", 0), ("absent", 1)])
def test_get_loads_neither_spark_nor_anything_else_that_is_slow(tmp_path: Path, key: str, code: int) -> None:
    """One key of 5 million is answered within a second, with the start of the process."""
    keep(tmp_path, ROWS)
    python = [sys.executable, "-c", _AND_SAY_WHAT_IS_LOADED, *map(str, _get(tmp_path, key))]
    done = subprocess.run(python, env=environment(), cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stderr.splitlines()[-1] == f"({code}, [])"


def test_each_key_is_looked_up_once() -> None:
    """However often it is named."""
    assert parsed(["a", "b", "a"], as_hex=False, as_json=False) == [b"a", b"b"]
    assert parsed(["00FF", "00 ff"], as_hex=True, as_json=False) == [b"\x00\xff"]
    assert parsed(['"ä"'], as_hex=False, as_json=True) == ['"ä"'.encode()]
    with pytest.raises(UsageError):
        parsed(["1"], as_hex=True, as_json=True)
