"""What Spark's exceptions say of a failed query: more than a person wants to read, and its plan."""

from __future__ import annotations

import traceback
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from compactor.spark.errors import briefly
from connectors.config.secrets import printable_text
from connectors.source import stream
from tests.support.cli import NOBODY
from tests.support.clients import source_clients

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SECRET = "marker-of-a-secret"


def test_no_secret_of_a_source_is_in_what_is_said_of_its_error(spark: SparkSession, tmp_path: Path) -> None:
    """A query's exception goes on with kilobytes of plan; neither that nor an option of the source is printed."""
    clients = {"bootstrap.servers": NOBODY, "sasl.password": SECRET, "client.id": SECRET}
    options = {**source_clients(clients), "topics": '["t"]', "read.timeout.ms": "500"}
    query = stream.start(spark, options, str(tmp_path / "checkpoint"), lambda _: None, None)
    with suppress(Exception):  # it is asked for below, as a connector does
        query.awaitTermination(60)
    error = query.exception()
    assert error is not None
    assert "=== Streaming Query ===" in str(error)
    told = [briefly(error), printable_text(str(error)), printable_text("".join(traceback.format_exception(error)))]
    assert [SECRET in text or "=== Streaming" in text for text in told] == [False] * 3
    assert len(told[0]) < 2_000
