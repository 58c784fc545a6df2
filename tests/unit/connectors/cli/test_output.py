"""What a command writes to stdout."""

from __future__ import annotations

import json
import os
import sys
from types import SimpleNamespace

import msgspec
import pytest

from connectors.cli import output
from connectors.cli.output import JsonLines
from connectors.terminal_text import readable


def test_a_reader_that_has_gone_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also by who has nothing to write: `tail … | head -1` ends."""
    read_end, write_end = os.pipe()
    with os.fdopen(write_end, "wb", buffering=0) as pipe:
        monkeypatch.setattr(sys, "stdout", SimpleNamespace(buffer=pipe, isatty=lambda: False))
        lines = JsonLines()
        assert lines.read_on
        os.close(read_end)
        assert not lines.read_on


@pytest.mark.parametrize(
    ("data", "shown"),
    [(None, None), (b"", ""), ("Zürich".encode(), "Zürich"), (b"\xff\x00", {"base64": "/wA="}), (b"a\nb", "a\nb")],
)
def test_bytes_are_shown_as_text_where_they_are_text(data: bytes | None, shown: object) -> None:
    """UTF-8 reads as text; anything else is an object with base64, so the two cannot be mixed up."""
    assert json.loads(msgspec.json.encode(readable(data))) == shown


@pytest.mark.parametrize(
    ("is_shown", "written"), [(True, "1 done\r\x1b[K2 done\r\x1b[Kthe end\n"), (False, "the end\n")]
)
def test_long_work_is_a_line_that_moves(is_shown: bool, written: str, capsys: pytest.CaptureFixture[str]) -> None:
    """On a terminal a line is replaced by the next, and goes before something else is said; a pipe gets none."""
    steps = output.Steps(10, lambda done: f"{done // 10} done", is_shown=is_shown)
    for done in (3, 10, 19, 20):
        steps(done)
    output.note("the end")
    assert capsys.readouterr().err == written
