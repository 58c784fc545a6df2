"""Runs a worker under a steady load for an hour: `python -m tests.faults.soak --minutes 60 --into FOLDER`.

A real broker, a real worker with folds, snapshots and vacuum, and a load that knows the truth; with `--connectors 10`
ten connectors in that worker, which share the load; with `--failing` two more that fail again and again
(`failing_connectors`). What the worker uses is noted every ten seconds, the promises are checked at the end;
`soak_report` makes table and plot of the notes.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import psutil

from connectors.dev.embedded_kafka import EmbeddedKafka
from connectors.errors import EXIT_FAILED, EXIT_OK
from tests.faults import soak_report
from tests.faults.crowded_scenario import CrowdedScenario
from tests.faults.failing_connectors import FailingConnectors
from tests.faults.neighbours import Crowd
from tests.faults.worker_process import WorkerProcess
from tests.support.deployment import Deployment

EVERY_S: Final = 10.0
RATE: Final = 250
"""Records per second, of all connectors together."""
SETTINGS: Final = {
    "snapshot.interval.ms": 60_000,
    "min.cleanable.dirty.ratio": 0.5,
    "fold.level0.files": 32,
    "delete.retention.ms": 120_000,
    "trigger.interval.ms": 4_000,
}
# As in production, but that the first fold does not wait a minute, and that Spark's JVM is not given a gigabyte of
# heap to fill before it first looks for garbage.
WORKER: Final = {
    "log.cleaner.initial.delay.ms": 15_000,
    "log.cleaner.backoff.ms": 15_000,
    "spark.driver.memory": "512m",
}


def main() -> int:
    """Runs the soak; returns 0 if nothing grew and every promise held."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--minutes", type=float, default=60)
    options.add_argument("--connectors", type=int, default=1)
    options.add_argument("--failing", action="store_true")
    options.add_argument("--into", type=Path, required=True)
    asked = options.parse_args()
    asked.into.mkdir(parents=True, exist_ok=True)
    notes = asked.into / "soak.jsonl"
    breaches = _run(asked.minutes * 60, asked.connectors, notes, fails=asked.failing)
    for breach in breaches:
        print("BREACH", breach)
    flat = soak_report.write(notes, asked.into)
    return 0 if flat and not breaches else 1


def _run(seconds: float, connectors: int, notes: Path, *, fails: bool) -> list[str]:
    rate = RATE / connectors
    crowd = Crowd(connectors - 1, rate, SETTINGS)
    with (
        TemporaryDirectory() as folder,
        EmbeddedKafka(Path(folder) / "kafka") as broker,
        CrowdedScenario(Path(folder) / "field", broker.bootstrap, 1, SETTINGS, rate, crowd) as scenario,
    ):
        scenario.deployment.worker |= WORKER
        failing = FailingConnectors(scenario.deployment) if fails else None
        worker = scenario.start(*failing.files() if failing else ())
        scenario.until_publishing()
        _watch(scenario, worker, seconds, notes)
        shutil.copy(worker.log, notes.with_name("worker.log"))  # for the reason of whatever is found
        if not worker.alive:
            return [f"the worker ended: {worker.tail()}"]
        found = scenario.violations()
        code, took_s = worker.terminate()
        print(f"stopped with exit code {code} in {took_s:.1f} s; {_sent(scenario):,} records were sent")
        if failing:
            print(f"the connectors that fail were started {failing.starts()} times")
        ends = {EXIT_OK, EXIT_FAILED} if failing else {EXIT_OK}
        return found if code in ends else [*found, f"exit code {code}"]


def _watch(scenario: CrowdedScenario, worker: WorkerProcess, seconds: float, notes: Path) -> None:
    """Appends what is used every ten seconds, until the time is over or the worker ends."""
    began = time.monotonic()
    with notes.open("w", encoding="utf-8") as file:
        while (passed := time.monotonic() - began) < seconds and worker.alive:
            file.write(json.dumps({"seconds": round(passed), **_note(scenario, worker.process.pid)}) + "\n")
            file.flush()
            time.sleep(max(0.0, EVERY_S - (time.monotonic() - began - passed)))


def _note(scenario: CrowdedScenario, pid: int) -> dict[str, Any]:
    """Returns memory in bytes (PSS), threads and open files by role, and files by folder."""
    every = [(scenario.deployment, scenario.load.ends())]
    every += [(one.deployment, one.records.ends()) for one in scenario.neighbours]
    return {
        "connectors": len(every),
        "behind": sum(_behind(deployment, ends) for deployment, ends in every),
        "records": _sent(scenario),
        "epoch": max(deployment.state().epoch for deployment, _ in every),
        "processes": _processes(psutil.Process(pid)),
        "store": _stored(scenario.deployment.folder),
    }


def _sent(scenario: CrowdedScenario) -> int:
    return len(scenario.load.acknowledged) + sum(len(one.records.acknowledged) for one in scenario.neighbours)


def _behind(deployment: Deployment, ends: Mapping[int, int]) -> int:
    published = deployment.published()
    return sum(end - published.get(partition, 0) for partition, end in ends.items())


def _processes(worker: psutil.Process) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for process in (worker, *worker.children(recursive=True)):
        with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            role = _role(process, worker)
            used = found.setdefault(role, {"memory": 0, "threads": 0, "open_files": 0, "processes": 0})
            used["memory"] += process.memory_full_info().pss
            used["threads"] += process.num_threads()
            used["open_files"] += process.num_fds()
            used["processes"] += 1
    return found


def _role(process: psutil.Process, worker: psutil.Process) -> str:
    if process.pid == worker.pid:
        return "worker"
    return "jvm" if process.name() == "java" else "spark python"


def _stored(folder: Path) -> dict[str, dict[str, int]]:
    """Returns files and bytes in each folder of the connectors' storage, all together, and of their snapshots."""
    found: dict[str, dict[str, int]] = {}
    for part in (*(folder / "storage").glob("*/*"), folder / "snapshots"):
        if part.is_dir():
            stored, sizes = found.setdefault(part.name, {"files": 0, "bytes": 0}), list(_sizes(part))
            stored["files"] += len(sizes)
            stored["bytes"] += sum(sizes)
    return found


def _sizes(folder: Path) -> Iterator[int]:
    for path in folder.rglob("*"):
        with suppress(FileNotFoundError):
            if path.is_file():
                yield path.stat().st_size


if __name__ == "__main__":
    sys.exit(main())
