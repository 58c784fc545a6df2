"""Spark settings that make many small queries start sooner; the tests of demo and local cluster go without."""

from __future__ import annotations

from typing import Final

QUICK_START: Final = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
