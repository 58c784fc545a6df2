"""A Spark that has none of what keyfold uses of its insides: what a worker needs still works."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from connectors.spark import private
from tests.support.cli import ROOT, environment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SECRET = "marker-of-a-secret"
SOURCES = "org.apache.spark.sql.execution.datasources.DataSourceManager$"

_QUERY = """
import json, os, signal, sys
from compactor.ingest.ingest import WRITTEN
from connectors.source.datasource import KafkaSource
from connectors.spark import private, session
from tests.support.kafka import wait_until
import psutil

spark = session.get_session("local[2]", {"spark.hadoop.fs.s3a.secret.key": sys.argv[1]})
(jvm,) = [each for each in psutil.Process().children() if each.name() == "java"]
rows = []
spark.dataSource.register(KafkaSource)
stream = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
writer = stream.writeStream.foreachBatch(lambda batch, _: rows.extend(batch.collect()))
query = private.start_query(writer.option("checkpointLocation", "file://" + sys.argv[2]))
wait_until(lambda: len(rows) >= 30, "three micro-batches", 60)
query.stop()
"""
_KILLED = """
before = session.gone(spark)
commands = " ".join(jvm.cmdline())
jvm.kill()
wait_until(lambda: session.gone(spark) is not None, "the end of the JVM is seen", 60)
print(json.dumps({"before": str(before or ""), "secret": sys.argv[1] in commands, "rows": len(rows) >= 30}))
"""
_CLOSED = """
session.close(spark)
session.end(spark, 30)
wait_until(lambda: not jvm.is_running() or "process" in os.environ["KEYFOLD_SPARK_WITHOUT"], "the JVM ends", 60)
print(json.dumps({"rows": len(rows) >= 30}))
"""


def _run(script: str, folder: Path, without: str) -> tuple[dict[str, object], list[str]]:
    """Runs `script` without some switches; returns what it prints at last, and the switches that it has logged."""
    own = {name: text for name, text in environment().items() if not name.startswith(("SPARK_", "PYSPARK_"))}
    done = subprocess.run(
        [sys.executable, "-c", script, SECRET, str(folder / "checkpoint")],
        env={**own, private.VARIABLE: without},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    printed = done.stdout + done.stderr
    logged = [name for name in private.SWITCHES if printed.count(f"switch={name} ") or f"switch={name}\n" in printed]
    return json.loads(done.stdout.splitlines()[-1]), logged


@pytest.mark.long  # e2e/test_without_private.py has a whole worker
def test_a_session_and_its_query_run_without_private_switches(tmp_path: Path) -> None:
    """Its settings are on no command line there either, and each switch that it goes without is logged once.

    The end of its JVM is seen without its process, by a call that nobody answers. How such a session is closed
    e2e/test_without_private.py tries.
    """
    printed, logged = _run(_QUERY + _KILLED, tmp_path, private.ALL)
    assert printed == {"before": "", "secret": False, "rows": True}
    assert set(private.SWITCHES) - set(logged) <= {"user", "stop"}


@pytest.mark.long  # without all at once: the test above
@pytest.mark.parametrize("switch", private.SWITCHES)
def test_a_session_runs_its_query_and_ends_without_each_private_switch(tmp_path: Path, switch: str) -> None:
    """A PySpark that lacks one of them takes no other with it: that one is logged, and none besides."""
    printed, logged = _run(_QUERY + _CLOSED, tmp_path, switch)
    assert printed == {"rows": True}
    assert logged == ([] if switch == "user" else [switch])  # that one is for an id without an account


def test_spark_looks_for_no_other_python_sources(spark: SparkSession) -> None:
    """It would start a process for that. The variable is Spark's own: if this fails, a new Spark has another way."""
    jvm: Any = spark._jvm
    manager = jvm.java.lang.Class.forName(SOURCES).getField("MODULE$").get(None)
    before = manager.dataSourceBuilders()
    set_builders = getattr(manager, "dataSourceBuilders_$eq")
    set_builders(jvm.scala.Option.empty())  # as in a new JVM: it has not looked yet
    try:
        private.adapt(spark, {})
        assert manager.dataSourceBuilders().isDefined()
        assert manager.dataSourceBuilders().get().isEmpty()
    finally:
        set_builders(before)


def test_a_query_that_spark_refuses_with_the_switch_runs_without_it(spark: SparkSession, tmp_path: Path) -> None:
    """Spark refuses to write its progress later with this trigger, as another Spark may with every one."""
    rows: list[Any] = []
    stream = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
    writer = stream.writeStream.foreachBatch(lambda batch, _: rows.extend(batch.collect())).trigger(availableNow=True)
    private.forget()
    try:
        query = private.start_query(writer.option("checkpointLocation", tmp_path.as_uri()))
        assert [switch for switch in private.SWITCHES if not private.is_used(switch)] == ["progress"]
    finally:
        private.forget()
    assert query.awaitTermination(60)
    assert len(rows) >= 10


def test_this_spark_has_every_switch(spark: SparkSession) -> None:
    """None was missed in this session. If this fails, a new Spark lacks one, and its function needs another way."""
    assert all(map(private.is_used, private.SWITCHES))
    assert private.jvm_process(spark) is not None
    assert str(spark.conf.get(private.FILES)).endswith(".FileSystemBasedCheckpointFileManager")


def test_the_ports_of_spark_give_nothing_to_who_has_no_secret(spark: SparkSession) -> None:
    """Every account of the machine reaches them: the driver's own and the block manager's, with all that tasks get."""
    context: Any = spark.sparkContext._jsc
    blocks = context.sc().getExecutorMemoryStatus().keySet().mkString()  # the driver's alone: its host and its port
    ports = [int(spark.conf.get("spark.driver.port") or 0), int(blocks.rpartition(":")[2])]
    request = b"\x03" + bytes(8) + b"\0\0\0\1\0"  # RpcRequest of Spark's network protocol: a type, a number, a body
    for port in ports:
        with socket.create_connection(("127.0.0.1", port), 20) as connection:
            connection.settimeout(20)
            connection.sendall((8 + len(request)).to_bytes(8, "big") + request)
            assert b"SaslMessage" in connection.recv(1000), port
