"""Peers whose packages need other versions are installed into environments of their own."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from benchmarks.harness.environments import pip_install
from benchmarks.harness.row import MissingError
from benchmarks.peers.flink_install import flink_python
from benchmarks.peers.quix_streams import quix_python

PYTHONS = pytest.mark.parametrize("python", [flink_python, quix_python])


@PYTHONS
def test_what_keeps_a_peer_from_being_installed_is_said(tmp_path: Path, python: Callable[..., Path]) -> None:
    """If pip fails its last word is in the error, and the environment is not taken for a finished one."""

    def create(target: Path, **_: bool) -> None:
        (target / "bin").mkdir(parents=True)
        pip = target / "bin" / "python"
        pip.write_text("#!/bin/sh\necho a line >&2\necho no matching distribution >&2\nexit 1\n")
        pip.chmod(0o755)

    with pytest.raises(MissingError, match="could not be installed: no matching distribution"):
        python(tmp_path, partial(pip_install, create=create))
    assert not list(tmp_path.rglob(".installed"))


@PYTHONS
def test_a_peer_is_installed_once(tmp_path: Path, python: Callable[..., Path]) -> None:
    """The second time its environment is taken as it is."""
    asked: list[str] = []

    def install(wanted: str, target: Path, _: Path) -> None:
        target.mkdir(parents=True)
        asked.append(wanted)

    assert python(tmp_path, install) == python(tmp_path, install)
    assert len(asked) == 1
