"""`keyfold run`: what it says and checks before anything is begun; Spark and the worker are left out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.cli import NAME, NOBODY, connector_file, invoke, write_json


class _Worker:
    """Ends at once."""

    abandoned = ()

    def __init__(self, *_: Any) -> None:
        """Nothing is begun."""

    def run(self, *, once: bool) -> int:
        """Done."""
        return 0 if once else 1


@pytest.fixture(autouse=True)
def begun(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names the masters of the Sparks that were begun."""
    found: list[str] = []
    monkeypatch.setattr("connectors.spark_start.SparkStart", lambda master, *_: found.append(master))
    monkeypatch.setattr("connectors.worker.Worker", _Worker)
    return found


def test_the_folder_of_the_storage_is_said_at_the_start(tmp_path: Path) -> None:
    """One line names the folder that storage.location means, and the connectors."""
    worker = write_json(tmp_path / "worker.json", {"bootstrap.servers": NOBODY, "storage.location": "here"})
    result = invoke("run", connector_file(tmp_path), "--once", "--worker", worker)
    assert result.exit_code == 0
    line = next(line for line in result.stderr.splitlines() if "starting" in line)
    assert f"storage={tmp_path}/here" in line
    assert NAME in line
