"""Which cases run, where they run, and the table at the end.

FAULTS=all runs every case; without it only those that are marked `selected` do, as in `make test`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from connectors.dev.embedded_kafka import EmbeddedKafka
from tests.faults import matrix
from tests.faults.cases import Cases
from tests.faults.scenario import Scenario

HERE = Path(__file__).parent


def pytest_configure(config: pytest.Config) -> None:
    """The marker of this folder."""
    config.addinivalue_line("markers", "selected: a fault case that runs without FAULTS=all too")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Without FAULTS=all the cases that are not `selected` are left out."""
    if os.environ.get("FAULTS") == "all":
        return
    left_out = [item for item in items if HERE in item.path.parents and item.get_closest_marker("selected") is None]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """The matrix, as far as it has come."""
    file = matrix.file()
    if file is not None and (found := matrix.read(file)):
        terminalreporter.section("faults")
        terminalreporter.write_line(matrix.table(found))


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory, broker: EmbeddedKafka) -> Iterator[Cases]:
    """Where the cases of one file happen: its last worker ends with it, and is in nobody's way after that."""
    with Cases(tmp_path_factory.mktemp("faults"), broker.bootstrap, Scenario) as running:
        yield running
