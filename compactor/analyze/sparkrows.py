"""What counting on Spark shares: rows that come to the driver, and figures of a row's log."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from compactor.runs.scan import LOG
from compactor.spark.errors import unwrapping

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Row


def rows(frame: DataFrame) -> list[Row]:
    """What `frame` comes to. Raises StorageError."""
    with unwrapping():
        return frame.collect()


def of_log(values: Iterable[int]) -> Column:
    """Of `values`, by number of the log, the one of a row's log."""
    from pyspark.sql.functions import expr

    return expr(f"array({', '.join(f'{value}L' for value in values)})[{LOG}]")
