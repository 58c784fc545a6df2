"""Short ways to call the command and to make a connector's folder for it."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import structlog
from typer.testing import CliRunner, Result

from compactor.catalog.catalog import Catalog
from compactor.model import record
from compactor.model.actions import AddPartition, AddTopic, AnyAction, Append
from compactor.model.log import Run, RunFile
from compactor.storage.base import Storage
from compactor.storage.locations import open_storage

if TYPE_CHECKING:
    from connectors.cli.options import CommandParts
    from connectors.config.files import ConnectorFile
    from connectors.config.worker import WorkerConfig
    from connectors.runtime.worker import Worker, WorkerParts
    from connectors.spark.session import SparkStart

ROOT = Path(__file__).parents[2]
NAME = "orders-keeper"
NOBODY = "127.0.0.1:1"
"""An address where no broker answers."""


@contextmanager
def own_logging() -> Iterator[None]:
    """Puts logging back as it was before the block."""
    root = logging.getLogger()
    handlers, level, config = root.handlers[:], root.level, structlog.get_config()
    try:
        yield
    finally:
        logging.captureWarnings(capture=False)
        root.handlers[:] = handlers
        root.setLevel(level)
        structlog.configure(**config)


def invoke(*arguments: object, parts: CommandParts | None = None) -> Result:
    """Runs `keyfold ARGUMENTS…` in this process, with other `parts` if they are given."""
    from connectors.cli.main import app

    with own_logging():
        return CliRunner().invoke(app, [str(each) for each in arguments], obj=parts)


def command(*arguments: object) -> list[str]:
    """`keyfold ARGUMENTS…` for a process of its own."""
    return [sys.executable, "-m", "connectors.cli.main", *(str(each) for each in arguments)]


def environment(**more: str) -> dict[str, str]:
    """This process's environment, in which the project is found from any folder and no KEYFOLD_ variable is set."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("KEYFOLD_")}
    path = os.pathsep.join(filter(None, [str(ROOT), kept.get("PYTHONPATH")]))
    return {**kept, "PYTHONPATH": path, **more}


def execute(*arguments: object, cwd: Path = ROOT, **more: str) -> subprocess.CompletedProcess[str]:
    """Runs `keyfold ARGUMENTS…` as a process of its own, with `more` in its environment."""
    return subprocess.run(
        command(*arguments), cwd=cwd, env=environment(**more), capture_output=True, text=True, check=False, timeout=60
    )


def write_json(path: Path, content: Mapping[str, Any]) -> Path:
    """Writes `content` to `path`."""
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


def worker_file(folder: Path, bootstrap: str = NOBODY, **more: str) -> Path:
    """A worker file in `folder`, with its store there."""
    own = {"bootstrap.servers": bootstrap, "storage.location": str(folder / "store"), "listeners": ""}
    return write_json(folder / "worker.json", {**own, **more})


def worker_over(
    config: WorkerConfig, files: Sequence[ConnectorFile], spark: SparkStart, parts: WorkerParts | None = None
) -> Worker:
    """A worker that does not listen, over connectors of files."""
    from connectors.clock import SystemClock
    from connectors.progress.observer import Observer
    from connectors.runtime.herder import Herder
    from connectors.runtime.worker import Worker

    clock, observer = SystemClock(), Observer()
    return Worker(config, Herder(config, clock, observer, files), clock, observer, spark, parts=parts)


def connector_file(folder: Path, **more: str) -> Path:
    """A connector file in `folder` for the topic `orders`."""
    own = {"name": NAME, "connector.class": "keyfold.CompactedTopic", "topics": "orders"}
    return write_json(folder / "connector.json", {**own, **more})


def storage_of(folder: Path) -> Storage:
    """The folder of the connector `NAME` in the store of `worker_file(folder)`."""
    return open_storage(str(folder / "store")).sub(NAME)


def row(offset: int, key: bytes | None, value: bytes | None, **more: Any) -> dict[str, Any]:
    """A record of `orders`, partition 0, as a run holds it."""
    plain = {"topic": "orders", "partition": 0, "offset": offset, "timestamp": 1_000 + offset, "timestamp_type": 0}
    return {**plain, "key": key, "value": value, "headers": [], "delete_horizon": None, "rejected": None, **more}


def keep(
    folder: Path,
    rows: Sequence[Mapping[str, Any]],
    actions: Sequence[AnyAction] = (),
    topic_id: str = "id-of-orders",
) -> Catalog:
    """A catalog in which `orders`, partition 0, holds `rows` as one run from offset 0 on; then `actions`."""
    storage = storage_of(folder)
    end = rows[-1]["offset"] + 1
    catalog = Catalog.open(storage, NAME)
    catalog.take_over("tester:1", 1_000)
    topic = AddTopic(topic="orders", topic_id=topic_id, output="orders.compacted", output_id="id-of-output")
    partition = AddPartition(topic="orders", partition=0, bucket=0, start=0)
    appended = Append(topic="orders", partition=0, start=0, end=end, run=_run(storage, rows, end))
    catalog.commit(lambda _state: (topic, partition, appended, *actions), 2_000)
    return catalog


def _run(storage: Storage, rows: Sequence[Mapping[str, Any]], end: int) -> Run:
    path = "runs/1-test.parquet"
    batch = pa.Table.from_pylist([dict(each) for each in rows], schema=record.RUN)
    with storage.open_output(path) as out:
        pq.write_table(batch, out)
    first, last, size = rows[0]["offset"], rows[-1]["offset"], record.measure(batch)
    file = RunFile(
        path=path, first=first, last=last, records=len(rows), bytes=size, file_bytes=len(storage.read(path)), sha256=""
    )
    tombstones, rejected = (sum(each["value"] is None for each in rows), sum(bool(each["rejected"]) for each in rows))
    return Run(
        start=0,
        end=end,
        level=0,
        files=(file,),
        records=len(rows),
        bytes=size,
        tombstones=tombstones,
        rejected=rejected,
    )
