"""A broker whose cleaner is quick, and the comparison that runs on it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from connectors.dev.embedded_kafka import EmbeddedKafka
from tests.conformance.kafka_cleaner import BROKER
from tests.conformance.side_by_side import SideBySide

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def cleaning_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedKafka]:
    """Starts a broker of its own, because its cleaner cleans all topics at once."""
    with EmbeddedKafka(tmp_path_factory.mktemp("cleaning"), properties=BROKER, heap="512m") as running:
        yield running


@pytest.fixture(scope="session")
def bench(
    cleaning_broker: EmbeddedKafka,
    spark: SparkSession,
    tmp_path_factory: pytest.TempPathFactory,
    pytestconfig: pytest.Config,
) -> SideBySide:
    """Compacts workloads on both sides; prints the times of each batch between the tests' own lines."""
    terminal = pytestconfig.pluginmanager.get_plugin("terminalreporter")
    capture = pytestconfig.pluginmanager.get_plugin("capturemanager")

    def say(line: str) -> None:
        if terminal is not None and capture is not None:  # in a process of pytest-xdist there is no terminal
            with capture.global_and_fixture_disabled():
                terminal.write_line(line)

    return SideBySide(cleaning_broker, spark, tmp_path_factory.mktemp("bench"), say)
