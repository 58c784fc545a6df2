"""Spark settings that make many small queries start sooner; the demo's test goes without."""

from __future__ import annotations

from typing import Final

from connectors.spark import JAVA_OPTIONS, LOGGING

QUICK_START: Final = {
    JAVA_OPTIONS: f"{LOGGING} -XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
