"""A start of Spark that was begun before the files were checked, and is not the one that they ask for."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.support.cli import ROOT

_SCRIPT = """
from connectors.spark.session import SparkStart, close, end
from connectors.spark.start_ahead import StartAhead

starts = []

def start(*given):
    starts.append(SparkStart(*given))
    return starts[-1]

with StartAhead('{"bootstrap.servers": "h:1"}', start) as ahead:
    (begun,) = starts
    assert begun.wait(60) is not None
    taken = ahead.take("local[1]", {}, "auto")
    spark = taken.wait(60)
    print(taken is begun, spark.sparkContext.master, spark.range(3).count())
    close(spark)
    end(spark, 30)
"""


def test_another_start_follows_one_whose_jvm_has_answered() -> None:
    """PySpark would use the JVM that has ended for the new session: no worker with such files would start."""
    own = {name: text for name, text in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT], env=own, cwd=ROOT, capture_output=True, text=True, check=False, timeout=150
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "False local[1] 3"
