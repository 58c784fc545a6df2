"""The store under a worker: full, away, lost, another one, and damaged files of the catalog and of Spark."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.faults.cases import Case, Cases
from tests.faults.strikes import ASLEEP
from tests.support.deployment import Deployment
from tests.support.kafka import wait_until

pytestmark = pytest.mark.timeout(600)


def kept(deployment: Deployment) -> Path:
    """The connector's folder in storage.location."""
    return Path(deployment.worker["storage.location"]) / deployment.name


def newest_commit(deployment: Deployment) -> Path:
    """The catalog's newest version."""
    return max((kept(deployment) / "catalog").glob("*.json"), key=lambda path: path.name)


def first_commit(deployment: Deployment) -> Path:
    """With it a catalog begins."""
    return kept(deployment) / "catalog" / f"{1:020}.json"


def damage(file: Path) -> None:
    """The second half is gone, as after a loss of power on a store that does not keep what it promised."""
    data = file.read_bytes()
    file.unlink()
    file.write_bytes(data[: len(data) // 2])


def put_back(away: Path, deployment: Path) -> bool:
    """Whether `away` stands at `place` again; a running worker may just have left its status there."""
    shutil.rmtree(deployment, ignore_errors=True)
    with suppress(OSError):
        away.rename(deployment)
        return True
    return False


@contextmanager
def small_disk(folder: Path, megabytes: int) -> Iterator[Path]:
    """A file system of its own size; the test is skipped where it may not be mounted."""
    folder.mkdir(parents=True, exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(folder)]
    if shutil.which("mount") is None or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("mounting a small disk needs rights that are not there")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], capture_output=True, check=False)


@pytest.mark.parametrize("how", ["deleted", "damaged"])
def test_sparks_checkpoint(cases: Cases, how: str) -> None:
    """The query's own record of progress is never gone on from: where Spark misses it, the query starts anew."""
    with cases.case(f"checkpoint {how}", "while running") as case:
        worker = case.scenario.running()
        case.strikes()
        (folder,) = Path(tempfile.gettempdir()).glob(f"keyfold-query-{worker.process.pid}-*")
        if how == "deleted":
            shutil.rmtree(folder)
        else:
            files = [path for path in folder.rglob("*") if path.is_file() and path.stat().st_size]
            assert files
            for file in files:
                damage(file)
        case.recovers()
        assert worker.alive, worker.tail()
        case.outcome = "same worker"
        assert case.violations() == []


def test_the_newest_commit_is_damaged(cases: Cases) -> None:
    """FAILED with the file's name. Without it, with no worker alive, the catalog is one commit older, and goes on."""
    with cases.case("newest catalog commit damaged", "while stopped") as case:
        scenario = case.scenario
        scenario.running().kill()
        commit = newest_commit(scenario.deployment)
        whole = commit.read_bytes()
        damage(commit)
        case.strikes()
        scenario.start()
        case.fails(commit.name)
        commit.unlink()
        commit.write_bytes(whole)
        scenario.start()
        case.recovers()
        assert case.violations() == []


def take_newest_commit_away(case: Case, step: str) -> None:
    """Kills the worker at `step`, and removes the catalog's newest commit; the next worker goes on."""
    scenario = case.scenario
    worker = scenario.meet(step, ASLEEP)
    worker.kill()
    newest_commit(scenario.deployment).unlink()
    case.strikes()
    scenario.start()
    case.recovers()


@pytest.mark.parametrize("step", ["ingest.after-commit", "publish.before-commit", "publish.after-commit"])
def test_the_newest_commit_is_taken_away(cases: Cases, step: str) -> None:
    """One commit back, with no worker alive: source, positions and output make up for it."""
    with cases.case("newest catalog commit taken away", step) as case:
        take_newest_commit_away(case, step)
        assert case.violations() == []


def test_the_storage_is_lost(cases: Cases) -> None:
    """The positions say that there was a catalog: FAILED, never a first run. Restored, it goes on by itself."""
    with cases.case("storage lost, positions remain", "while stopped") as case:
        scenario = case.scenario
        scenario.running().kill()
        away = kept(scenario.deployment).with_suffix(".away")
        kept(scenario.deployment).rename(away)
        case.strikes()
        scenario.start()
        case.is_failing("belongs to catalog")
        assert not first_commit(scenario.deployment).exists(), "a new catalog was made where the storage was"
        wait_until(lambda: put_back(away, kept(scenario.deployment)), "it is mounted again")
        case.recovers()
        assert case.violations() == []


def test_the_storage_goes_under_a_running_worker(cases: Cases) -> None:
    """What is not mounted any more is an error, never an empty catalog; back again, a worker goes on."""
    with cases.case("storage away", "while running") as case:
        scenario = case.scenario
        worker = scenario.running()
        deployment = scenario.deployment
        away = kept(deployment).with_suffix(".away")
        kept(deployment).rename(away)
        said = ("connector FAILED", "connector waits for an outage to end")
        scenario.until(lambda: any(text in worker.printed() for text in said), "it has noticed")
        scenario.rest(5)
        assert not first_commit(deployment).exists(), "a new catalog was made where the storage was"
        wait_until(lambda: put_back(away, kept(deployment)), "it is mounted again")
        case.strikes()
        if not worker.alive:
            scenario.start()
        case.recovers()
        assert case.violations() == []


def test_two_storages_under_one_name(cases: Cases) -> None:
    """A second worker of the name, on a storage of its own, is FAILED and makes nothing; the first goes on."""
    with cases.case("two storages under one name", "while running") as case:
        scenario = case.scenario
        first = scenario.running()
        own = scenario.deployment.worker["storage.location"]
        case.strikes()
        scenario.deployment.worker["storage.location"] = f"{own}-other"
        try:
            second = scenario.start()
            case.is_failing("belongs to catalog")
            second.kill()
        finally:
            scenario.deployment.worker["storage.location"] = own
            scenario.worker = first
        case.recovers()
        assert first.alive, first.tail()
        assert case.violations() == []


def fill(disk: Path) -> Path:
    """A file that takes all the room there is."""
    ballast = disk / "ballast"
    with suppress(OSError), ballast.open("wb", buffering=0) as out:
        while True:
            out.write(bytes(4096))
    return ballast


def test_a_full_disk(cases: Cases) -> None:
    """Nothing can be written for a while: the same worker waits, says so, and goes on when there is room."""
    cases.renew()
    with (
        cases.case("no space", "any time") as case,
        small_disk(case.scenario.deployment.folder / "storage", 64) as disk,
    ):
        scenario = case.scenario
        worker = scenario.running()
        ballast = fill(disk)
        scenario.until(lambda: "No space left" in worker.printed(), "it says what is wrong")
        scenario.rest(5)
        ballast.unlink()
        case.strikes()
        case.recovers()
        assert worker.alive, worker.tail()
        case.outcome = "same worker"
        assert case.violations() == []
        scenario.clear()
    cases.renew()
