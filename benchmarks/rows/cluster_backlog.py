"""A backlog on a standalone Spark cluster, beside the worker's own Spark: storage of both is in an object store.

The cluster's machines are processes of this one and share its cores, so that the row tells what a cluster costs.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from benchmarks.harness.datasets import filled_topic, named
from benchmarks.harness.row import Measurement, run_peer
from benchmarks.harness.s3_server import s3_server
from benchmarks.peers.keyfold import Keyfold

_RUNS: Final = 3
_LOCAL: Final = {"spark.master": "local[*]"}


def cluster_backlog(bootstrap: str) -> dict[str, float]:
    """Measures seconds from the command to the last committed position, by turns on the cluster and without it."""
    from tests.support.spark_cluster import SparkCluster, bare_python, worker_settings

    topic = filled_topic(bootstrap, named("small"))
    with (
        s3_server() as store,
        tempfile.TemporaryDirectory() as folder,
        SparkCluster(Path(folder, "cluster"), bare_python(Path(folder, "python"))) as cluster,
    ):
        on_cluster = worker_settings(cluster)
        took = [
            (_seconds(bootstrap, topic, store, on_cluster), _seconds(bootstrap, topic, store, _LOCAL))
            for _ in range(_RUNS)
        ]
    return {
        "times local[*]": statistics.median(there / here for there, here in took),
        "cluster, s": statistics.median(there for there, _ in took),
        "local[*], s": statistics.median(here for _, here in took),
    }


def _seconds(bootstrap: str, topic: str, store: Mapping[str, str], spark: Mapping[str, str]) -> float:
    return run_peer(Keyfold(worker={**store, **spark}), bootstrap, topic).seconds


CLUSTER_BACKLOG: Final = Measurement(
    "cluster-backlog",
    "5 million records on a Spark cluster of this machine's cores, beside local[*]; storage in an S3 server",
    {},
    cluster_backlog,
)
