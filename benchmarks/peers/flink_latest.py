"""Runs a job of Flink SQL until the process is ended; runs where apache-flink is installed.

python flink_latest.py JOB-FILE, with JSON that benchmarks/peers/flink.py writes
"""

import json
import os
import sys
from pathlib import Path

from pyflink.common import Configuration  # type: ignore[import-not-found]
from pyflink.table import EnvironmentSettings, TableEnvironment  # type: ignore[import-not-found]


def main(file: str) -> None:
    """Starts a mini-cluster in a JVM of its own, makes the tables, and runs the last statement."""
    job = json.loads(Path(file).read_text(encoding="utf-8"))
    # Before the first of PyFlink's objects, with which the JVM starts.
    os.environ.update(JVM_ARGS=f"-Xmx{job['heap']}", FLINK_LOG_DIR=job["folder"])
    settings = Configuration()
    for name, value in job["settings"].items():
        settings.set_string(name, value)
    built = EnvironmentSettings.new_instance().in_streaming_mode().with_configuration(settings).build()
    tables = TableEnvironment.create(built)
    *definitions, query = job["statements"]
    for statement in definitions:
        tables.execute_sql(statement)
    tables.execute_sql(query).wait()


if __name__ == "__main__":
    main(sys.argv[1])
