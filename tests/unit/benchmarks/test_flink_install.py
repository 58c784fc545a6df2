from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from benchmarks.harness.row import MissingError
from benchmarks.peers.flink_install import CONNECTOR_VERSION, kafka_connector
from connectors.errors import UnreachableError

JAR = b"a connector"


class Maven:
    """Gives JAR for the connector, and says what it was asked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def fetch(self, dependencies: str, _scratch: Path, fetched: Path) -> None:
        self.asked.append(dependencies)
        fetched.mkdir()
        (fetched / f"flink-sql-connector-kafka-{CONNECTOR_VERSION}.jar").write_bytes(JAR)


def test_the_connector_is_fetched_once(tmp_path: Path) -> None:
    """The second time the file is taken as it is, and nothing else is left in the cache."""
    maven = Maven()
    first, second = (
        kafka_connector(tmp_path, fetch=maven.fetch, sha256=hashlib.sha256(JAR).hexdigest()) for _ in range(2)
    )
    assert first == second
    assert len(maven.asked) == 1
    assert [file.read_bytes() for file in tmp_path.iterdir()] == [JAR]


def test_a_changed_connector_is_refused(tmp_path: Path) -> None:
    """A file with another digest is not used, and does not stay."""
    with pytest.raises(MissingError, match="came changed"):
        kafka_connector(tmp_path, fetch=Maven().fetch)
    assert not list(tmp_path.iterdir())


def test_an_unreachable_repository_leaves_flink_out(tmp_path: Path) -> None:
    """Without Maven the peer cannot run here, which is no failure of the measurements."""

    def fetch(*_: object) -> None:
        raise UnreachableError("no network", "try again")

    with pytest.raises(MissingError, match="could not be fetched"):
        kafka_connector(tmp_path, fetch=fetch)
