"""How many connectors a worker may have, and what REST is told beyond that."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import pytest
import structlog

from connectors.config.files import load_connector, load_worker
from connectors.errors import ConfigError, ConflictError
from connectors.runtime.lifecycle import TargetState
from connectors.runtime.specs.connector_files import FileChanges
from connectors.runtime.specs.connector_limit import LEAST_FILES, most_connectors, open_files_limit, refuse_few_files
from tests.support.cli import worker_file, write_json
from tests.support.herd import Herd, config, put

WARNING = "more connectors than connectors.max"


@pytest.fixture
def herd(tmp_path: Path) -> Herd:
    found = Herd(tmp_path)
    found.worker = load_worker(worker_file(tmp_path, **{"connectors.max": "2"}))
    return found


@pytest.mark.parametrize(
    ("configured", "open_files", "most"),
    [
        (None, 256, 10),
        (None, 1_024, 15),
        (None, 20_000, 590),
        (None, 1_048_576, 1_000),
        (None, -1, 1_000),
        (0, 1_024, 0),
        (5_000, 1_024, 5_000),
    ],
)
def test_open_files_say_how_many_there_may_be(configured: int | None, open_files: int, most: int) -> None:
    """Unless the worker file says it."""
    assert most_connectors(configured, open_files) == most


@pytest.mark.parametrize(("limit", "said"), [(1_024, 1_024), (resource.RLIM_INFINITY, -1)])
def test_the_limit_of_open_files_is_the_process_own(monkeypatch: pytest.MonkeyPatch, limit: int, said: int) -> None:
    """The soft limit counts: the hard one is only what it may be raised to."""
    monkeypatch.setattr(resource, "getrlimit", lambda _: (limit, 1_048_576))
    assert open_files_limit() == said


def test_no_connector_more_than_the_most_is_made(herd: Herd) -> None:
    """Whatever the others are to be; what there is can be changed, and a deleted one makes room."""
    herder = herd.begin()
    assert put(herder, config("a"))
    assert put(herder, config("b"), TargetState.STOPPED)
    with pytest.raises(ConflictError, match=r"worker: 2; connectors\.max is 2\. Delete one, or raise"):
        put(herder, config("c"))
    assert not put(herder, config("a", **{"tasks.max": "3"}))
    assert herd.states() == {"a": "RUNNING", "b": "STOPPED"}
    herder.specs.delete("b")
    assert put(herder, config("c"))


def test_a_connector_that_is_still_ending_counts(herd: Herd) -> None:
    """It has its threads and files until it has ended: deleting is no way to have more of them."""
    herder = herd.begin()
    put(herder, config("a"))
    put(herder, config("b"))
    herder.specs.delete("b")
    with pytest.raises(ConflictError, match="worker: 2;"):
        put(herder, config("c"))
    herd.made["b"][0].over = True
    herder.reconcile()
    assert put(herder, config("c"))


def test_files_are_not_refused(herd: Herd) -> None:
    """At the start and later they count, and a warning says that there are more."""
    paths = [write_json(herd.folder / f"{name}.json", config(name).given) for name in "abcd"]
    herder = herd.begin(*paths[:3])
    assert [(one["connectors"], one["max"]) for one in herd.logged if one["event"] == WARNING] == [(3, 2)]
    with pytest.raises(ConflictError, match=r"worker: 3; connectors\.max is 2"):
        put(herder, config("e"))
    with structlog.testing.capture_logs() as logged:
        herder.apply(FileChanges(put=(load_connector(paths[3], herd.worker),)))
    assert [one["connectors"] for one in logged if one["event"] == WARNING] == [4]
    assert sorted(herd.states()) == ["a", "b", "c", "d"]


def test_what_is_stored_is_not_refused(herd: Herd) -> None:
    """A worker that is started with a lower bound runs what was made before."""
    herder = herd.begin()
    put(herder, config("a"))
    put(herder, config("b"))
    herd.end()
    herd.worker = load_worker(worker_file(herd.folder, **{"connectors.max": "1"}))
    herd.begin()
    assert sorted(herd.states()) == ["a", "b"]
    assert [one["connectors"] for one in herd.logged if one["event"] == WARNING] == [2]


RAISED = """
import resource
from connectors.runtime.specs.connector_limit import raise_open_files_limit
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 700))
raise_open_files_limit()
print(resource.getrlimit(resource.RLIMIT_NOFILE))
"""


def test_soft_limit_of_open_files_becomes_the_hard_one() -> None:
    """A worker under systemd has 1,024 files by its soft limit, and uses what the hard one allows."""
    ran = subprocess.run([sys.executable, "-c", RAISED], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "(700, 700)"


@pytest.mark.parametrize("open_files", [LEAST_FILES, -1])
def test_a_worker_with_files_enough_is_not_refused(open_files: int) -> None:
    """The least is enough, and so is no limit."""
    refuse_few_files(open_files)


def test_a_worker_with_one_file_less_is_refused() -> None:
    """Spark's JVM would not start, or fail as it first reads a further library."""
    with pytest.raises(ConfigError, match=f"is {LEAST_FILES - 1}; a worker needs {LEAST_FILES}"):
        refuse_few_files(LEAST_FILES - 1)
