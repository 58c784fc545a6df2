"""Spark settings with which many small queries start faster; the demo's test has Spark's own."""

from __future__ import annotations

from typing import Final

from connectors.spark.session import JAVA_OPTIONS, LOGGING

_QUICK_JAVA: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
FAST_START: Final = {
    JAVA_OPTIONS: f"{LOGGING} {_QUICK_JAVA}",
    "spark.executor.extraJavaOptions": _QUICK_JAVA,
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
