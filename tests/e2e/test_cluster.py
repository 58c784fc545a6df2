"""The same pipeline on executors of their own: nothing depends on the driver's process."""

from __future__ import annotations

from pathlib import Path

from connectors.errors import EXIT_OK
from connectors.jvm.cds_archive import sharing
from connectors.jvm.spark_home import JARS, ensure_home
from tests.support.kafka import end_offsets, produce
from tests.support.place import Place
from tests.support.records import living, snapshot, some_records

EXECUTOR = "spark.executor.extraJavaOptions"


def test_run_once_on_a_local_cluster(place: Place) -> None:
    """With spark.master=local-cluster[2,1,1024] the output and the snapshot are what they are in one process."""
    produce(place.bootstrap, place.topic, some_records(1, 500))
    place.worker["spark.master"] = "local-cluster[2,1,1024]"
    archive = sharing(Path(ensure_home() or "", JARS))  # the executors' class path is the driver's: they start sooner
    place.worker[EXECUTOR] = " ".join([place.worker[EXECUTOR], *archive])
    with place.process("--once") as worker:
        assert worker.wait(150) == EXIT_OK, worker.tail()
    assert place.breaches() == []
    assert place.published() == end_offsets(place.bootstrap, place.topic)
    assert snapshot(place)[1] == living(place)
