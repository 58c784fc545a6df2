"""Peers whose packages need other versions are installed into environments of their own."""

from __future__ import annotations

import subprocess
import venv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks.harness.row import MissingError
from benchmarks.peers.flink_install import flink_python
from benchmarks.peers.quix_streams import quix_python

PYTHONS = pytest.mark.parametrize("python", [flink_python, quix_python])


@PYTHONS
def test_what_keeps_a_peer_from_being_installed_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, python: Callable[[Path], Path]
) -> None:
    """If pip fails its last word is in the error, and the environment is not taken for a finished one."""

    def fail(command: list[str], **_: Any) -> None:
        raise subprocess.CalledProcessError(1, command, stderr="a line\nno matching distribution\n")

    monkeypatch.setattr(venv, "create", lambda *_, **__: None)
    monkeypatch.setattr(subprocess, "run", fail)
    with pytest.raises(MissingError, match="could not be installed: no matching distribution"):
        python(tmp_path)
    assert not list(tmp_path.rglob(".installed"))


@PYTHONS
def test_a_peer_is_installed_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, python: Callable[[Path], Path]
) -> None:
    """The second time its environment is taken as it is."""
    asked: list[list[str]] = []

    def create(target: Path, **_: Any) -> None:
        target.mkdir(parents=True)

    monkeypatch.setattr(venv, "create", create)
    monkeypatch.setattr(subprocess, "run", lambda command, **_: asked.append(command))
    assert python(tmp_path) == python(tmp_path)
    assert len(asked) == 1
