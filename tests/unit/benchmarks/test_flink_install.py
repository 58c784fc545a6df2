from __future__ import annotations

import hashlib
import subprocess
import venv
from pathlib import Path
from typing import Any

import pytest

from benchmarks.harness.row import MissingError
from benchmarks.peers import flink_install
from benchmarks.peers.flink_install import CONNECTOR_VERSION, flink_python, kafka_connector
from connectors.errors import UnreachableError

JAR = b"a connector"


@pytest.fixture
def fetched(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What Maven was asked for; it gives JAR."""
    asked: list[str] = []

    def retrieve(dependencies: str, scratch: Path, fetched: Path) -> None:
        asked.append(dependencies)
        fetched.mkdir()
        (fetched / f"flink-sql-connector-kafka-{CONNECTOR_VERSION}.jar").write_bytes(JAR)

    monkeypatch.setattr(flink_install, "retrieve", retrieve)
    return asked


def test_what_keeps_flink_from_being_installed_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where pip fails its last word is in the error, and the environment is not taken for a finished one."""

    def fail(command: list[str], **_: Any) -> None:
        raise subprocess.CalledProcessError(1, command, stderr="a line\nno matching distribution\n")

    monkeypatch.setattr(venv, "create", lambda *_, **__: None)
    monkeypatch.setattr(subprocess, "run", fail)
    with pytest.raises(MissingError, match="could not be installed: no matching distribution"):
        flink_python(tmp_path)
    assert not list(tmp_path.rglob(".installed"))


def test_flink_is_installed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second time its environment is taken as it is."""
    asked: list[list[str]] = []

    def create(target: Path, **_: Any) -> None:
        target.mkdir(parents=True)

    monkeypatch.setattr(venv, "create", create)
    monkeypatch.setattr(subprocess, "run", lambda command, **_: asked.append(command))
    assert flink_python(tmp_path) == flink_python(tmp_path)
    assert len(asked) == 1


def test_the_connector_is_fetched_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fetched: list[str]) -> None:
    """The second time the file is taken as it is, and nothing else is left in the cache."""
    monkeypatch.setattr(flink_install, "_CONNECTOR_SHA256", hashlib.sha256(JAR).hexdigest())
    assert kafka_connector(tmp_path) == kafka_connector(tmp_path)
    assert len(fetched) == 1
    assert [one.read_bytes() for one in tmp_path.iterdir()] == [JAR]


@pytest.mark.usefixtures("fetched")
def test_a_changed_connector_is_refused(tmp_path: Path) -> None:
    """A file with another digest is not used, and does not stay."""
    with pytest.raises(MissingError, match="came changed"):
        kafka_connector(tmp_path)
    assert not list(tmp_path.iterdir())


def test_an_unreachable_repository_leaves_flink_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without Maven the peer cannot run here, which is no failure of the measurements."""

    def retrieve(*_: Any) -> None:
        raise UnreachableError("no network", "try again")

    monkeypatch.setattr(flink_install, "retrieve", retrieve)
    with pytest.raises(MissingError, match="could not be fetched"):
        kafka_connector(tmp_path)
