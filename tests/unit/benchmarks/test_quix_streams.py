from __future__ import annotations

import subprocess
import venv
from pathlib import Path
from typing import Any

import pytest

from benchmarks.harness.row import MissingError
from benchmarks.peers.quix_streams import quix_python


def test_what_keeps_quix_streams_from_being_installed_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where pip fails its last word is in the error, and the environment is not taken for a finished one."""

    def fail(command: list[str], **_: Any) -> None:
        raise subprocess.CalledProcessError(1, command, stderr="a line\nno matching distribution\n")

    monkeypatch.setattr(venv, "create", lambda *_, **__: None)
    monkeypatch.setattr(subprocess, "run", fail)
    with pytest.raises(MissingError, match="could not be installed: no matching distribution"):
        quix_python(tmp_path)
    assert not list(tmp_path.rglob(".installed"))


def test_quix_streams_is_installed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second time its environment is taken as it is."""
    asked: list[list[str]] = []

    def create(target: Path, **_: Any) -> None:
        target.mkdir(parents=True)

    monkeypatch.setattr(venv, "create", create)
    monkeypatch.setattr(subprocess, "run", lambda command, **_: asked.append(command))
    assert quix_python(tmp_path) == quix_python(tmp_path)
    assert len(asked) == 1
