"""Spark settings that make many small queries start sooner; the demo's test goes without."""

from __future__ import annotations

from typing import Final

from connectors.spark import DEFAULTS

_JAVA: Final = "spark.driver.extraJavaOptions"
QUICK_START: Final = {
    _JAVA: f"{DEFAULTS[_JAVA]} -XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
