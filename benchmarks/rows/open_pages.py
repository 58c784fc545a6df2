"""What open pages cost a worker: processor time of its process with ten of them, less that with none."""

from __future__ import annotations

import http.client
import statistics
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import psutil

from benchmarks.harness.process import Running
from benchmarks.harness.row import Measurement
from benchmarks.harness.watch import passed
from benchmarks.peers.keyfold import running_connectors
from benchmarks.rows.connectors import filled_topics
from benchmarks.rows.worker import IDLE_SETTLE_S
from connectors.dev.embedded_kafka import free_port

CONNECTORS: Final = 100
OVERVIEWS: Final = 9
"""The tenth page is that of a connector."""
ROUNDS: Final = 4
WINDOW_S: Final = 30.0
"""Windows with pages and without take turns: what else the worker and the machine do is in both."""
_SHOWN_S: Final = 6.0
"""Until the pages were sent whole, and what changes comes."""
_TIMEOUT_S: Final = 60.0


def open_pages(bootstrap: str) -> dict[str, float]:
    """Measures the processor time (% of a core) of a worker with CONNECTORS idle connectors, with pages and without."""
    topics, port = filled_topics(bootstrap, CONNECTORS), free_port()
    listens = {"listeners": f"http://127.0.0.1:{port}"}
    used: dict[bool, list[float]] = {False: [], True: []}
    with (
        tempfile.TemporaryDirectory() as folder,
        running_connectors(bootstrap, topics, Path(folder), worker_settings=listens) as worker,
    ):
        worker.until_published()
        worker.running.until(passed(IDLE_SETTLE_S))
        for _ in range(ROUNDS):
            used[False].append(_percent(worker.running))
            with _looking(port, [*["/ui"] * OVERVIEWS, f"/ui/connectors/{worker.names[0]}"]) as read:
                worker.running.until(passed(_SHOWN_S))
                before = sum(read)
                used[True].append(_percent(worker.running))
                if sum(read) == before:
                    raise RuntimeError("the pages were sent nothing")
    without, with_pages = (statistics.median(used[each]) for each in (False, True))
    return {"without, % of a core": without, "with, % of a core": with_pages, "% of a core": with_pages - without}


def _percent(running: Running) -> float:
    """Returns what the worker's process, without its JVM, takes in a window (% of a core)."""
    process = psutil.Process(running.process.pid)
    before = process.cpu_times()
    running.until(passed(WINDOW_S))
    after = process.cpu_times()
    return 100 * (after.user + after.system - before.user - before.system) / WINDOW_S


@contextmanager
def _looking(port: int, paths: list[str]) -> Iterator[list[int]]:
    """Keeps a page of each path open during the block; yields how many bytes each was sent."""
    read = [0] * len(paths)
    connections = [http.client.HTTPConnection("127.0.0.1", port, timeout=_TIMEOUT_S) for _ in paths]
    threads = [
        threading.Thread(target=_read, args=(each, path, read, at), daemon=True)
        for at, (each, path) in enumerate(zip(connections, paths, strict=True))
    ]
    for thread in threads:
        thread.start()
    try:
        yield read
    finally:
        for each in connections:
            if each.sock is not None:
                each.sock.shutdown(2)
        for thread in threads:
            thread.join()


def _read(connection: http.client.HTTPConnection, path: str, read: list[int], at: int) -> None:
    """Reads what a page is sent until its connection ends. Raises RuntimeError for another answer."""
    connection.request("GET", path, headers={"Accept": "text/event-stream"})
    answer = connection.getresponse()
    if answer.status != http.HTTPStatus.OK:
        raise RuntimeError(f"{path} was answered with {answer.status}")
    with suppress(http.client.IncompleteRead):  # it goes on until it is ended from here
        while piece := answer.read1(1 << 16):
            read[at] += len(piece)


OPEN_PAGES: Final = Measurement(
    "pages",
    f"ten open pages of a worker with {CONNECTORS} idle connectors, beside none",
    {"% of a core": (1, 1)},
    open_pages,
)
