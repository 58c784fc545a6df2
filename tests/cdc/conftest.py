"""One story of a database for all tests here, and the table of what came of it."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from connectors.dev.embedded_kafka import EmbeddedKafka
from tests.support.apicurio import apicurio
from tests.support.cdc.postgres import PACKAGES, postgres, programs
from tests.support.cdc.report import write_report
from tests.support.cdc.story import Story

_MISSING = f"PostgreSQL is not installed below /usr/lib/postgresql: apt-get install {PACKAGES}"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skips these tests unless they are asked for, and if there is no PostgreSQL."""
    asked = "CDC" in os.environ
    for item in items:
        if "tests/cdc" in item.path.as_posix() and not (asked and programs()):
            item.add_marker(pytest.mark.skip(reason=_MISSING if asked else "make cdc fetches Debezium"))


@pytest.fixture(scope="session")
def story(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Iterator[Story]:
    """The story, told; prints its steps as they happen, and the table of its results at the end."""
    terminal = pytestconfig.pluginmanager.get_plugin("terminalreporter")
    capture = pytestconfig.pluginmanager.get_plugin("capturemanager")

    def say(line: str) -> None:
        if terminal is not None and capture is not None:
            with capture.global_and_fixture_disabled():
                terminal.write_line(line)

    folder = tmp_path_factory.mktemp("cdc")
    with postgres() as server, EmbeddedKafka(folder / "kafka", heap="768m") as broker, apicurio(folder) as registry:
        told = Story(server, broker, registry, folder, say)
        told.run()
        say(write_report(told.results.values()))
        yield told
