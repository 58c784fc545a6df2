"""What an older version has written is read by this one, value by value, and a connector goes on from it.

tests/data/README.md says how the folders are made.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
from msgspec import NODEFAULT, Struct
from msgspec.structs import fields

from compactor.catalog.catalog import Catalog
from compactor.catalog.commits import Checkpoint, Commit, checkpoint_path, commit_path, list_versions, read
from compactor.model.actions import AnyAction
from compactor.runs import checksums
from compactor.snapshot import manifest
from tests.support.oracle.simulation import CONNECTOR
from tests.support.oracle.steps import FoldMethod
from tests.support.written.folder import Copy, Written, every, lost, plain
from tests.support.written.making import make
from tests.support.written.onward import breaches, go_on
from tests.support.written.readers import READERS

FOLDERS = every()
READINGS = [(folder, name) for folder in FOLDERS for name in folder.readings]


@pytest.fixture(params=FOLDERS, ids=lambda folder: folder.folder.name)
def written(request: pytest.FixtureRequest) -> Written:
    found: Written = request.param
    return found


@pytest.fixture
def copy(written: Written, tmp_path: Path) -> Copy:
    return written.copied(tmp_path)


@pytest.mark.parametrize(("folder", "name"), READINGS, ids=[f"{one.folder.name}-{name}" for one, name in READINGS])
def test_all_is_read_as_it_was_meant(folder: Written, name: str, tmp_path: Path) -> None:
    """Every file gives what the version that wrote it has read of it; fields may have been added since."""
    assert list(lost(folder.expected(name), plain(READERS[name](folder.copied(tmp_path))))) == []


def test_nothing_that_the_catalog_says_is_passed_over(copy: Copy) -> None:
    """Each field of each commit and checkpoint is read: one with another name would read as its default."""
    files = list_versions(copy.storage)
    found: dict[str, Commit | Checkpoint] = {commit_path(one): _commit(copy, one) for one in files.commits}
    found |= {checkpoint_path(one): _checkpoint(copy, one) for one in files.checkpoints}
    for path, one in found.items():
        assert list(lost(json.loads(copy.storage.read(path)), plain(one), path)) == []


def test_the_commits_say_what_the_checkpoint_says(copy: Copy) -> None:
    """The state is the same from the first commit on and from the checkpoint on."""
    state = Catalog.open(copy.storage, CONNECTOR).state
    for version in list_versions(copy.storage).checkpoints:
        copy.storage.delete(checkpoint_path(version))
    alone = Catalog.open(copy.storage, CONNECTOR)
    assert alone.state == state
    assert alone.version == len(list_versions(copy.storage).commits)


def test_every_kind_of_action_is_kept() -> None:
    """A kind of action that is added is first kept here: else nobody would notice that it is no longer read."""
    kinds = {kind.__struct_config__.tag for kind in get_args(AnyAction)}
    said = {
        action["do"]
        for folder in FOLDERS
        for path in folder.folder.glob("storage/c/catalog/*.json")
        for action in json.loads(path.read_bytes()).get("actions", ())
    }
    assert said == kinds


def test_every_field_of_the_catalog_is_kept(tmp_path: Path) -> None:
    """So it is with fields: each has a value other than its default in one of the files."""
    found: set[tuple[type[Struct], str]] = set()
    for number, folder in enumerate(FOLDERS):
        copy = folder.copied(tmp_path / str(number))
        files = list_versions(copy.storage)
        found |= {*_said([_commit(copy, one) for one in files.commits])}
        found |= {*_said([_checkpoint(copy, one) for one in files.checkpoints])}
        found |= {*_said(Catalog.open(copy.storage, CONNECTOR).state)}
    kinds = {kind for kind, _ in found} | {*get_args(AnyAction)}
    wanted = {(kind, field.name) for kind in kinds for field in fields(kind)}
    assert wanted - found == set()


def test_every_file_is_what_was_written(copy: Copy) -> None:
    """Checksums of runs, of their footers, and of a snapshot's data hold."""
    state = Catalog.open(copy.storage, CONNECTOR).state
    files = [file for log in state.logs for run in (log.base, *log.runs) if run for file in run.files]
    assert len(files) >= 10
    for file in files:
        assert file.footer is not None
        checksums.verify_footer(copy.storage, file)
        assert checksums.verify_file(copy.storage, file)
    for taken in state.snapshots:
        for data in manifest.read(copy.shelf, taken.path).files:
            assert hashlib.sha256(copy.shelf.read(f"{taken.path}/{data.path}")).hexdigest() == data.sha256


def test_runs_of_every_kind_are_kept() -> None:
    """Delete horizons, merged runs, runs folded as they came, records without a key, rejected ones."""
    for folder in FOLDERS:
        logs = folder.expected("state")["logs"]
        runs = [run for log in logs for run in (log["base"], *log["runs"]) if run]
        assert {run["level"] for run in runs} == {-1, 0, 1}
        assert all(any(run[field] for run in runs) for field in ("horizons", "folded", "rejected", "tombstones"))
        assert any(file["keyless"] for run in runs for file in run["files"])


@pytest.mark.parametrize("fold_method", FoldMethod)
def test_a_connector_goes_on_from_it(written: Written, fold_method: FoldMethod, tmp_path: Path) -> None:
    """A new life publishes, cleans, takes snapshots and clears up: nothing is lost and nothing comes twice."""
    simulation = written.simulation(tmp_path)
    go_on(simulation, fold_method)
    assert list(breaches(simulation)) == []


def test_a_folder_can_be_made_of_what_this_version_writes(tmp_path: Path) -> None:
    """`python -m tests.support.written` makes one from which a connector goes on as well; never over another one."""
    make(tmp_path / "made")
    simulation = Written(tmp_path / "made").simulation(tmp_path / "world")
    go_on(simulation, FoldMethod.MEMORY)
    assert list(breaches(simulation)) == []
    with pytest.raises(FileExistsError):
        make(tmp_path / "made")


@pytest.mark.parametrize(
    ("said", "found", "wrong"),
    [
        ({"a": 1}, {"a": 1, "b": 2}, []),
        ({"a": 1}, {"b": 1}, [".a is not read"]),
        ({"a": [{"b": 1}]}, {"a": [{"b": 2}]}, [".a[0].b is 1, read as 2"]),
        ({"a": [1]}, {"a": [1, 2]}, [".a is [1], read as [1, 2]"]),
        ({"a": None}, {"a": 0}, [".a is None, read as 0"]),
    ],
)
def test_what_is_lost_is_found(said: Any, found: Any, wrong: list[str]) -> None:
    """A field that is missing or has another value is named; one that is new is not."""
    assert list(lost(said, found)) == wrong


def _commit(copy: Copy, version: int) -> Commit:
    return read(copy.storage, commit_path(version), Commit)


def _checkpoint(copy: Copy, version: int) -> Checkpoint:
    return read(copy.storage, checkpoint_path(version), Checkpoint)


def _said(value: object) -> Iterator[tuple[type[Struct], str]]:
    """The fields of all structs in `value` that have another value than their default."""
    if isinstance(value, Struct):
        for field in fields(value):
            inner = getattr(value, field.name)
            if inner != _default(field):
                yield type(value), field.name
            yield from _said(inner)
    elif isinstance(value, dict):
        yield from _said(value.values())
    elif isinstance(value, Iterable) and not isinstance(value, str | bytes):
        for one in value:
            yield from _said(one)


def _default(field: Any) -> object:
    return field.default if field.default_factory is NODEFAULT else field.default_factory()
