"""What Spark's exceptions say of a failed query: more than a person wants to read, and its plan."""

from __future__ import annotations

import traceback
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from compactor.spark.errors import briefly
from connectors.config.secrets import printable_text
from connectors.source.datasource import Address
from connectors.source.driver_link import DriverLink
from connectors.source.micro_batches import MicroBatches
from connectors.spark import stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SECRET = "marker-of-a-secret"


def test_no_secret_of_a_source_is_in_what_is_said_of_its_error(spark: SparkSession, tmp_path: Path) -> None:
    """A query's exception goes on with kilobytes of plan; neither that nor an option of the source is printed."""
    link = DriverLink(MicroBatches(1, shared=False))
    link.open()
    address = Address(link.address.path, SECRET)
    query = stream.start(spark, address, str(tmp_path / "checkpoint"), lambda _: None)
    with suppress(Exception):  # it is asked for below, as a connector does
        query.awaitTermination(60)
    link.close()
    error = query.exception()
    assert error is not None
    assert "=== Streaming Query ===" in str(error)
    told = [briefly(error), printable_text(str(error)), printable_text("".join(traceback.format_exception(error)))]
    assert [SECRET in text or "=== Streaming" in text for text in told] == [False] * 3
    assert len(told[0]) < 2_000
