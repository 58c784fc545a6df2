"""What a command writes to stdout."""

from __future__ import annotations

import json
import os
import sys
from types import SimpleNamespace

import msgspec
import pytest

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
