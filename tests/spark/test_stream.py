"""What is set in Spark before the worker's query is started."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from connectors.source import stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_spark_looks_for_no_other_python_sources(spark: SparkSession) -> None:
    """It would start a process for that. The variable is Spark's own: where this fails, a new Spark has another way."""
    jvm: Any = spark._jvm
    manager = jvm.java.lang.Class.forName(stream._MANAGER).getField("MODULE$").get(None)
    before = manager.dataSourceBuilders()
    set_builders = getattr(manager, "dataSourceBuilders_$eq")
    set_builders(jvm.scala.Option.empty())  # as in a new JVM: it has not looked yet
    try:
        stream._look_for_no_others(spark)
        assert manager.dataSourceBuilders().isDefined()
        assert manager.dataSourceBuilders().get().isEmpty()
    finally:
        set_builders(before)
