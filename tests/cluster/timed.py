"""`python -m tests.cluster.timed`: what a Spark cluster costs on one machine, by the clock, from command to exit.

100,000 records in two partitions, `keyfold run --once` twice for a connector of its own each time: the first run reads
them all, the second finds nothing new. Once with local[*], once on a standalone cluster with two workers; storage is a
folder for both. Further arguments KEY=VALUE are added to the worker files of the cluster.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from connectors.dev.embedded_kafka import EmbeddedKafka
from tests.support.deployment import Deployment
from tests.support.kafka import create_topic, produce
from tests.support.records import random_records
from tests.support.spark_cluster import SparkCluster, bare_python, worker_settings

RECORDS = 100_000
KEYS = 20_000
RUN_S = 300.0
LOCAL = {"spark.master": "local[*]"}


def runs(folder: Path, bootstrap: str, topic: str, name: str, settings: Mapping[str, str]) -> list[float]:
    """Returns the seconds of two runs, one after the other, of connector `name` on a worker with `settings`."""
    folder.mkdir()
    deployment = Deployment(folder, bootstrap, topic)
    plain = {key: value for key, value in deployment.worker.items() if not key.startswith("spark.")}
    deployment.worker = {**plain, **settings}
    deployment.settings |= {"name": name, "output.topic": f"{name}.compacted"}
    seconds = []
    for _ in range(2):
        begun = time.monotonic()
        with deployment.process("--once") as worker:
            code = worker.wait(RUN_S)
            assert code == 0, worker.tail()
        seconds.append(time.monotonic() - begun)
    return seconds


def main() -> None:
    """Measures both, and prints a line for each as soon as it is known."""
    extra = dict(each.split("=", 1) for each in sys.argv[1:])
    with tempfile.TemporaryDirectory(prefix="keyfold-timed-") as scratch:
        folder = Path(scratch)
        with (
            EmbeddedKafka(folder / "kafka") as broker,
            SparkCluster(folder / "c", bare_python(folder / "p")) as cluster,
        ):
            topic = create_topic(broker.bootstrap, "timed", partitions=2)
            produce(broker.bootstrap, topic, random_records(1, RECORDS, KEYS), **{"linger.ms": 5})
            wanted = {"local[*]": LOCAL, "cluster": {**worker_settings(cluster), **extra}}
            for number, (what, settings) in enumerate(wanted.items()):
                first, second = runs(folder / str(number), broker.bootstrap, topic, f"timed-{number}", settings)
                print(f"{what}: {first + second:.1f} s: {first:.1f} s and {second:.1f} s", flush=True)


if __name__ == "__main__":
    main()
