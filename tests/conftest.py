"""Fixtures for every kind of test. Broker and Spark start when a test first asks for them, once a session."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Generator, Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest
import structlog
from hypothesis import settings

from connectors import known_values
from connectors.dev.embedded_kafka import EmbeddedKafka
from connectors.kafka import admin
from tests.support.spark_settings import FAST_START

if TYPE_CHECKING:
    from _typeshed import FileDescriptorLike
    from pyspark.sql import SparkSession

    from tests.support.stores.running import RunningStore

ROOT = Path(__file__).parent.parent
settings.register_profile("keyfold", deadline=None)  # how long an example takes says something of the machine
settings.load_profile("keyfold")
_ORDER = ("e2e", "page", "faults", "conformance", "spark", "kafka", "unit")
"""What takes longest is begun first: at the end of a run every process has short tests left, and none is idle."""

_DEALT = ("e2e", "faults")
_WHOLE = ("page",)
"""Folders whose files share what takes a minute to make."""

_LONG = (
    *("test_demo.py", "test_as_connect.py", "test_cluster.py", "test_crash.py", "test_worker.py", "test_positions.py"),
    *("test_once.py", "test_outage.py", "test_offsets.py", "test_random_kills.py", "test_real_cleaner.py"),
    *("test_private.py", "test_histories.py", "test_amplifying_schemas.py", "test_kept.py", "test_object_store.py"),
    *("test_amplifying_keys.py", "test_guesses.py", "test_main.py", "test_schema_uses.py", "test_storage.py"),
)
"""Files of a folder that take longest."""

_SHARING = (
    *("test_beside.py", "test_demo.py", "test_help_examples.py", "test_offsets.py", "test_once.py"),
    *("test_positions.py", "test_rest.py", "test_snapshot_resume.py"),
)
"""Files of e2e/ whose tests share what took a worker or a connector some seconds to make."""

_ASKED = {
    "cluster": ("CLUSTER", "make cluster starts a Spark cluster; it takes a quarter of an hour"),
    "registry": ("REGISTRY", "make registry fetches Apicurio Registry"),
    "stores": ("STORES", "make stores fetches S3Proxy and Azurite"),
    "watch": ("WATCH", "make watch needs Prometheus and Chromium"),
    "tables": ("TABLES", "make tables fetches Iceberg's REST catalog, DuckDB's extensions and another Spark"),
}
"""Folders whose tests run only if a variable of the environment asks for them, and why."""


def pytest_configure() -> None:
    """Has this process leave what it writes to the kernel: no test cuts the power, and a disk takes its time.

    Tests that look whether files are synced replace `os.fsync` themselves; workers of tests that kill them do sync.
    What a worker's threads log goes to this process's own stderr: by structlog's default it would be in the output of
    a command that a test runs here meanwhile.
    """
    os.fsync = _check_open
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.__stderr__))


def _check_open(fd: FileDescriptorLike) -> None:
    os.fstat(fd if isinstance(fd, int) else fd.fileno())


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keeps Python's collector from looking at what is collected here, which stays to the end of the process.

    It would go through some million objects again and again, with ten thousand tests a third of the collection's time.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_unconfigure() -> None:
    """Gives Python's collector back what it was kept from: libraries say at the end what then is still there."""
    gc.unfreeze()


@pytest.hookimpl(tryfirst=True)  # before xdist, which reads the groups here
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long tests first; each test is marked with the name of its folder.

    Of several processes one takes a whole file, whose tests may share a fixture; the tests of e2e/ that share none
    are dealt one by one, and so are those of faults/, where each process has a worker of its own.
    """
    for item in items:
        folder = _folder(item.path)
        item.add_marker(folder)
        if (asked := _ASKED.get(_within(item.path).partition("/")[0])) and asked[0] not in os.environ:
            item.add_marker(pytest.mark.skip(reason=asked[1]))
        if item.get_closest_marker("long") and "LONG" not in os.environ:
            item.add_marker(pytest.mark.skip(reason="make long runs it"))
        if folder not in _DEALT or (folder == "e2e" and item.path.name in _SHARING):
            item.add_marker(pytest.mark.xdist_group(folder if folder in _WHOLE else _within(item.path)))
    items.sort(key=lambda item: (_ORDER.index(_folder(item.path)), item.path.name not in _LONG))


@cache  # ten thousand tests are in five hundred files
def _within(path: Path) -> str:
    return path.relative_to(ROOT / "tests").as_posix()


@cache
def _folder(path: Path) -> str:
    folder = _within(path).partition("/")[0]
    return folder if folder in _ORDER else "unit"


@pytest.fixture(autouse=True)
def _no_known_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forgets the placeholders and secrets of other tests: they would be hidden in what this one prints."""
    monkeypatch.setattr(known_values, "_known", known_values.KnownValues())


@pytest.fixture
def soon_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A topic that no broker knows counts as deleted after a second."""
    monkeypatch.setattr(admin, "GONE_AFTER_MS", 1_000)


@pytest.fixture(scope="session", autouse=True)
def _store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The object store of workers, where the environment names one (`tests/support/stores/chosen.py`)."""
    if not os.environ.get("STORE"):
        yield
        return
    from tests.support.stores.chosen import chosen_store

    with chosen_store(tmp_path_factory.mktemp("store")):
        yield


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedKafka]:
    """The one broker of the session; tests keep apart by the names of their topics."""
    with EmbeddedKafka(tmp_path_factory.mktemp("kafka")) as running:
        yield running


@pytest.fixture(scope="session")
def moto() -> Iterator[RunningStore]:
    """The one server of S3 and Glue of the session; tests keep apart by prefixes of its bucket."""
    from tests.support.stores.moto_server import moto_server

    with moto_server() as running:
        yield running


@pytest.fixture
def new_topic_name() -> Callable[[str], str]:
    """Gives names that no other test has, each beginning with the stem that it is given."""
    return lambda stem: f"{stem}-{uuid4().hex[:10]}"


@pytest.fixture
def topic_name(new_topic_name: Callable[[str], str]) -> str:
    """A name that no other test has."""
    return new_topic_name("t")


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The one Spark of the session: two threads, 1 GiB, UTC; its Python workers find the project and its tests."""
    from connectors.spark.session import get_session

    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    folder = tmp_path_factory.mktemp("warehouse")
    own = {"spark.sql.shuffle.partitions": "2", "spark.sql.warehouse.dir": str(folder)}
    shared = get_session("local[2]", {**own, **FAST_START})
    shared.sparkContext.setLogLevel("ERROR")
    yield shared
    shared.stop()
