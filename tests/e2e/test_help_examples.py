"""Each example of a command's help runs: on a real broker, with a worker, in a folder like a reader's."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from connectors.cli.commands.connectors import URL_VARIABLE
from connectors.dev.embedded_kafka import EmbeddedKafka, free_port
from connectors.errors import EXIT_OK, EXIT_PENDING
from tests.support.cli import command, environment, invoke, write_json
from tests.support.deployment import PROCESS_TIMEOUT_S, Process
from tests.support.examples import examples_by_command
from tests.support.kafka import create_topic, produce, wait_until
from tests.support.spark_settings import FAST_START

WORKER: Final = "run customers.json"
"""The example that goes on: those of LIVE are run with it, those of AFTER once it has ended."""
BEFORE: Final = ("validate", "run customers.json --once", WORKER)
LIVE: Final = (
    *("describe", "analyze", "get", "dump", "dlq list", "dlq show", "dlq redrive"),
    *("clean", "release", "restart", "snapshot customers.json", "snapshot list", "snapshot show", "snapshot verify"),
    *("snapshot pin", "snapshot unpin", "snapshot diff", "bootstrap", "tail", "restore", "erase customers", "erase"),
    *("connectors create", "connectors list", "connectors show", "connectors update", "top"),
    *("connectors pause", "connectors resume", "connectors restart", "connectors offsets orders"),
    *("connectors stop", "connectors offsets orders --set", "connectors delete", "resync"),
)
AFTER: Final = ("rebuild", "delete", "kafka", "package", "demo", "failpoints", "version")
ORDER: Final = (*BEFORE, *LIVE, *AFTER)
GOES_ON: Final = (WORKER, "tail customers", "--follow", "kafka")
"""Examples that Ctrl-C ends, by how they end or what they are."""
IN_PROCESSES: Final = ("run", "restore", "rebuild", "delete", "package", "demo")
"""Commands that start a JVM, or that take a while: each is a process, as a reader's is."""
LONG: Final = ("rebuild", "delete", "kafka", "package", "demo", "resync", "restore", "erase")
OTHER_CODES: Final = {"erase verify": EXIT_PENDING}
"""The tombstones of an erasure wait for a day (delete.retention.ms)."""
SNAPSHOT: Final = re.compile(r"\d{8}T\d{6}Z-[0-9a-f]{6}")


def _step(example: str) -> str:
    """The longest entry of ORDER that `example` begins with."""
    return max((each for each in ORDER if f"{example} ".startswith(f"keyfold {each} ")), key=len)


def _place(example: str) -> int:
    return ORDER.index(_step(example))


def _is_long(example: str) -> bool:
    return example.removeprefix("keyfold ").startswith(LONG) and "--dry-run" not in example


_ALL: Final = dict.fromkeys(each for examples in examples_by_command().values() for each in examples)
EXAMPLES: Final = sorted(_ALL, key=_place)
"""In the order in which they are run; groups of commands have those of their commands again."""


def _cases() -> Iterator[object]:
    for example in EXAMPLES:
        yield pytest.param(example, marks=[pytest.mark.long, pytest.mark.timeout(400)] if _is_long(example) else [])


class Reader:
    """A folder with the files of the examples, and the worker that one of them has started."""

    def __init__(self, folder: Path, broker: str) -> None:
        self.folder = folder
        # The examples that have been run.
        self._ran: set[str] = set()
        self._worker = ExitStack()
        url = f"http://127.0.0.1:{free_port()}"
        own = {"bootstrap.servers": broker, "storage.location": "data", "listeners": url, "spark.master": "local[2]"}
        write_json(folder / "worker.json", {**own, "spark.sql.shuffle.partitions": "2", **FAST_START})
        customers = {
            "name": "customers",
            "connector.class": "keyfold.CompactedTopic",
            "topics": "customers",
            "snapshot.location": "snapshots",
            "snapshot.interval.ms": 3_600_000,
            "errors.tolerance": "all",
            "errors.deadletterqueue.topic.name": "customers.dead",
            "errors.deadletterqueue.topic.replication.factor": 1,
        }
        write_json(folder / "customers.json", customers)
        orders = {"name": "orders", "connector.class": "keyfold.CompactedTopic", "topics": "orders"}
        write_json(folder / "orders.json", orders)

    def run_before(self, example: str) -> None:
        """Runs what `example` comes after and has not been run yet, long ones left out: `make long` selects only those.

        Whether they end well, their own tests show.
        """
        for earlier in EXAMPLES[: EXAMPLES.index(example)]:
            if earlier not in self._ran and not _is_long(earlier):
                self.prepare(_step(earlier))
                self.run(earlier)

    def run(self, example: str) -> tuple[int, str]:
        """Runs `example`; returns its exit code and what it printed."""
        self._ran.add(example)
        arguments = shlex.split(self._as_here(example))[1:]
        if f"keyfold {WORKER}" == example:
            return self._start_worker(arguments)
        if example.endswith(GOES_ON) or arguments[0] in GOES_ON:
            return self._interrupted(arguments)
        if arguments[0] in IN_PROCESSES:
            done = subprocess.run(
                command(*arguments), cwd=self.folder, env=environment(), capture_output=True, text=True, check=False
            )
            return done.returncode, done.stdout
        invoked = invoke(*arguments)
        return invoked.exit_code, invoked.output

    def prepare(self, step: str) -> None:
        """Brings about what `step` is for."""
        if step in AFTER:
            self.end_worker()
        if step == "rebuild":
            shutil.rmtree(self.folder / "data" / "customers")
        if step == "connectors offsets orders --set":
            shown = partial(invoke, "connectors", "show", "orders")
            wait_until(lambda: "orders: STOPPED" in shown().output, "connector orders is STOPPED")

    def end_worker(self) -> None:
        """Ends the worker."""
        self._worker.close()

    def _start_worker(self, arguments: list[str]) -> tuple[int, str]:
        process = Process(arguments, self.folder / "worker.log", {})
        self._worker.enter_context(process)
        process.until_logged("listening on")
        process.until_logged("taken over")
        self._worker.callback(self._end, process)
        return EXIT_OK, process.printed()

    def _interrupted(self, arguments: list[str]) -> tuple[int, str]:
        with Process(arguments, self.folder / "printed.log", {}) as process:
            before = len(process.printed())
            wait_until(lambda: len(process.printed()) > before, f"{arguments} prints something", PROCESS_TIMEOUT_S)
            return self._end(process), process.printed()[before:]

    @staticmethod
    def _end(process: Process) -> int:
        process.send(signal.SIGINT)
        return process.wait()

    def _as_here(self, example: str) -> str:
        """The example with what is another thing for each reader: the id of a snapshot, a port that is free."""
        for taken in sorted((self.folder / "snapshots" / "customers" / "customers").glob("2*Z-*"))[:1]:
            example = SNAPSHOT.sub(taken.name, example)
        return example.replace("--port 9092", f"--port {free_port()}")


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    """With a broker of its own: other tests have topics of the examples' names too."""
    with EmbeddedKafka(tmp_path_factory.mktemp("kafka")) as broker:
        for topic, partitions in (("customers", 2), ("orders", 1)):
            create_topic(broker.bootstrap, topic, partitions=partitions)
        keys = "ann", "bob", "eve"
        produce(broker.bootstrap, "customers", [(0, keys[n % 3].encode(), f"order {n}".encode()) for n in range(30)])
        produce(broker.bootstrap, "customers", [(1, b"joe", b"order 30"), (1, None, b"a record without a key")])
        produce(broker.bootstrap, "orders", [(0, b"7", b"paid")])
        reader = Reader(tmp_path_factory.mktemp("reader"), broker.bootstrap)
        try:
            yield reader
        finally:
            reader.end_worker()


@pytest.mark.parametrize("example", list(_cases()))
def test_an_example_of_help_runs(example: str, reader: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each ends with exit code 0 and prints something, in the order of ORDER; the worker file is that of the folder."""
    monkeypatch.chdir(reader.folder)
    for name in [name for name in os.environ if name.startswith("KEYFOLD_")] + [URL_VARIABLE]:
        monkeypatch.delenv(name, raising=False)
    reader.run_before(example)
    reader.prepare(_step(example))
    code, printed = reader.run(example)
    wanted = next((other for begin, other in OTHER_CODES.items() if example.startswith(f"keyfold {begin}")), EXIT_OK)
    assert (code, bool(printed.strip())) == (wanted, True), printed
