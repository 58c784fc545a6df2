"""What a command writes to stdout."""

from __future__ import annotations

import os
import sys
from types import SimpleNamespace

import pytest

from connectors.cli.output import JsonLines


def test_a_reader_that_has_gone_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also by who has nothing to write: `tail … | head -1` ends."""
    read_end, write_end = os.pipe()
    with os.fdopen(write_end, "wb", buffering=0) as pipe:
        monkeypatch.setattr(sys, "stdout", SimpleNamespace(buffer=pipe))
        lines = JsonLines()
        assert lines.read_on
        os.close(read_end)
        assert not lines.read_on
