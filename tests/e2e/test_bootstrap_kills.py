"""Reader and worker are killed again and again under load: a bootstrapped table misses nothing and repeats nothing."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count

import pytest

from compactor.storage.locations import NO_OPTIONS, StoreOptions
from connectors.bootstrap import open_table
from tests.support.bootstrap_reader import Stored
from tests.support.deployment import PROCESS_TIMEOUT_S, ROOT, Deployment
from tests.support.kafka import consume_all, produce, wait_until
from tests.support.records import random_records
from tests.support.stores.chosen import chosen

ROUNDS = 5


@pytest.mark.long
@pytest.mark.timeout(600)
def test_kills_of_reader_and_worker(deployment: Deployment) -> None:
    """What a reader stores with its position is the newest state in the end, each change once; a table lives through.

    Snapshots come every second and one of them is kept, so that they go while they are read.
    """
    stored, rng = Stored(deployment.folder / "stored.db"), random.Random(1)
    deployment.settings |= {
        "snapshot.interval.ms": 1_000,
        "snapshot.retention.count": 1,
        "min.cleanable.dirty.ratio": 0,
    }
    deployment.worker |= {"log.cleaner.backoff.ms": 500, "log.cleaner.initial.delay.ms": 0}
    kafka = {"bootstrap.servers": deployment.bootstrap}
    produce(deployment.bootstrap, deployment.topic, random_records(0, 500))
    with deployment.process("--once") as worker:
        assert worker.wait() == 0, worker.tail()
    with open_table(_location(deployment), kafka, store=_options()).table() as table:
        with _load(deployment):
            for _ in range(ROUNDS):
                with deployment.process() as worker, _reader(deployment, stored) as reader:
                    _until_read_on(stored, reader)
                    time.sleep(rng.random())
                    assert reader.poll() is None, (deployment.folder / "reader.log").read_text()
                    reader.kill()
                    time.sleep(rng.random())
                    worker.signal_all(signal.SIGKILL)
                    worker.wait()
        with deployment.process("--once") as worker:
            assert worker.wait() == 0, worker.tail()
        output = consume_all(deployment.bootstrap, deployment.output)
        newest = {(read.partition, read.key or b""): read.value for read in output}
        expected = {place: value for place, value in newest.items() if value is not None}
        table.catch_up(60)
        assert {(record.partition, record.key): record.value for record in table} == expected
    with _reader(deployment, stored) as reader:
        ends = {read.partition: read.offset + 1 for read in output}
        wait_until(lambda: reader.poll() or _offsets(stored, "now") == ends, "the reader is at the end", 60)
        assert reader.poll() is None, (deployment.folder / "reader.log").read_text()
    begun = _offsets(stored, "begun")
    assert stored.seen() == sorted((r.partition, r.offset) for r in output if r.offset >= begun[r.partition])
    assert stored.table() == expected


def _location(deployment: Deployment) -> str:
    """The topic's folder, as a reader names it."""
    return f"{deployment.settings['snapshot.location']}/{deployment.name}/{deployment.topic}"


def _options() -> StoreOptions:
    store = chosen()
    return NO_OPTIONS if store is None else store.store.options(store.worker_url)


def _environment() -> dict[str, str]:
    """The environment of a reader, which has no worker file: it says how the store of the snapshots is reached."""
    if chosen() is None:
        return dict(os.environ)
    options = {f"AWS_{name.upper()}": value for name, value in _options().s3.items()}
    return {**os.environ, **options, "AWS_ALLOW_HTTP": "true"}


def _offsets(stored: Stored, name: str) -> dict[int, int]:
    position = stored.position(name)
    assert position is not None
    return position.numbers


def _until_read_on(stored: Stored, reader: subprocess.Popen[bytes]) -> None:
    """Waits until the reader has stored changes, or has ended."""
    before = len(stored.seen())
    wait_until(lambda: reader.poll() or len(stored.seen()) > before, "the reader reads on", PROCESS_TIMEOUT_S)


@contextmanager
def _reader(deployment: Deployment, stored: Stored) -> Iterator[subprocess.Popen[bytes]]:
    arguments = [str(stored.file), _location(deployment), deployment.bootstrap]
    with (deployment.folder / "reader.log").open("ab") as log:
        command = [sys.executable, "-m", "tests.support.bootstrap_reader", *arguments]
        reader = subprocess.Popen(command, cwd=ROOT, env=_environment(), stdout=log, stderr=log)
        try:
            yield reader
        finally:
            reader.kill()
            reader.wait()


@contextmanager
def _load(deployment: Deployment) -> Iterator[None]:
    """Some hundred records a second during the block."""
    over = threading.Event()

    def send() -> None:
        for seed in count(1):
            produce(deployment.bootstrap, deployment.topic, random_records(seed, 60))
            if over.wait(0.2):
                return

    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
