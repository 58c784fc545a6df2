"""Which connector files there are, and what has become of them since they were read."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
import structlog

from connectors.config.errors import FaultyConfigError
from connectors.config.files import ConnectorFile, OtherFile, load_connector, load_worker, other_file
from connectors.config.worker import WorkerConfig
from connectors.runtime.specs import connector_files as module
from connectors.runtime.specs.connector_files import ConnectorFiles, FileChanges
from tests.support.cli import worker_file
from tests.support.config_map import ConfigMapVolume
from tests.support.kafka import wait_until

WATCH: Final = "connectors-dir"
NOT_VALID: Final = "connector file is not valid"
GOING_ON: Final = "going on with what was read before"
TIMEOUT_S: Final = 30.0


def text(name: str, **more: str) -> str:
    """A connector file whose connector reads the topic of its own name."""
    return json.dumps({"name": name, "connector.class": "keyfold.CompactedTopic", "topics": name, **more})


class Folder:
    """A folder of connector files, of a worker."""

    def __init__(self, parent: Path) -> None:
        self.parent = parent
        self.path = parent / "connectors.d"
        self.path.mkdir()

    def worker(self, **settings: str) -> WorkerConfig:
        return load_worker(worker_file(self.parent, **{"connectors.dir": str(self.path), **settings}))

    def write(self, files: Mapping[str, str | None]) -> None:
        """Writes files by their names without .json; None removes one."""
        for name, content in files.items():
            path = self.path / f"{name}.json"
            if content is None:
                path.unlink()
            else:
                new = path.with_suffix(".new")  # a reader that watches never sees half a file
                new.write_text(content, encoding="utf-8")
                new.replace(path)

    def loaded(self, *named: Path, **settings: str) -> ConnectorFiles:
        """The files, read as a worker does when it starts."""
        files = ConnectorFiles(self.worker(**settings), named)
        files.load()
        return files


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def names(changes: FileChanges) -> tuple[list[str], list[str], list[str]]:
    """The names of the connectors that are removed, put and unchanged."""
    put = [file.config.name for file in changes.put]
    return sorted(changes.removed), sorted(put), sorted(changes.unchanged)


def test_all_files_are_read(folder: Folder) -> None:
    """Those that are named first, in their order, then every *.json of the folder, and nothing else there."""
    folder.write({name: text(name) for name in "gcahbfed"})
    for other in ("c.json.bak", "c.txt", "json"):
        (folder.path / other).write_text(text("c"))
    (folder.path / "folder.json").mkdir()
    (folder.path / "gone.json").symlink_to("nowhere")
    named = [folder.parent / "z.json", folder.parent / "y.json"]
    for path in named:
        path.write_text(text(path.stem))
    with structlog.testing.capture_logs() as logged:
        found = ConnectorFiles(folder.worker(), named).load()
    assert [(file.path, file.config.name) for file in found] == [
        (named[0], "z"),
        (named[1], "y"),
        *((folder.path / f"{name}.json", name) for name in "abcdefgh"),
    ]
    assert logged == []


def test_without_a_folder_there_are_the_named_ones(tmp_path: Path) -> None:
    """A worker without connectors.dir reads them, now and later."""
    path = tmp_path / "a.json"
    path.write_text(text("a"))
    files = ConnectorFiles(load_worker(worker_file(tmp_path)), [path])
    assert [file.config.name for file in files.load()] == ["a"]
    assert names(files.reload()) == ([], [], ["a"])
    path.write_text(text("a", **{"tasks.max": "2"}))
    (put,) = files.reload().put
    assert put.config.tasks_max == 2


def test_named_files_are_read_strictly(folder: Folder) -> None:
    """The worker does not start over one that is faulty, whatever lies in the folder."""
    folder.write({"a": text("a")})
    path = folder.parent / "z.json"
    path.write_text(text("z", **{"tasks.max": "q"}))
    with pytest.raises(FaultyConfigError, match=r"z\.json: tasks\.max"):
        folder.loaded(path)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "this is not JSON"),
        ("", "the file is empty"),
        (text("b", **{"tasks.max": "q"}), "tasks.max"),
        (text("b", **{"consumer.override.ssl.ca.location": "${env:NOT_SET}"}), "NOT_SET"),
        (text("a"), '"a" is also in'),
        (text("b", topics="a"), 'is also the output topic of connector "a"'),
        (text("b", topics="z"), 'is also the output topic of connector "z"'),
    ],
)
def test_a_faulty_file_is_left_out_until_it_is_mended(folder: Folder, content: str, said: str) -> None:
    """The others run, and the log names it and what is wrong; mended, it is one of them."""
    named = folder.parent / "z.json"
    named.write_text(text("z"))
    folder.write({"a": text("a"), "b": content, "c": text("c")})
    with structlog.testing.capture_logs() as logged:
        files = folder.loaded(named)
        assert names(files.reload()) == ([], [], ["a", "c", "z"])
    lines = [line for line in logged if line["event"] == NOT_VALID]
    assert [(line["file"], line["then"]) for line in lines] == [(str(folder.path / "b.json"), "left out")] * 2
    assert said in lines[0]["error"]
    folder.write({"b": text("b")})
    assert names(files.reload()) == ([], ["b"], ["a", "c", "z"])


def test_a_file_that_meets_a_defect_harms_no_other(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    """What should never happen is logged with its file, and the others are read."""

    def load(path: Path, worker: Any = None) -> ConnectorFile:
        if path.name == "b.json":
            raise ValueError("embedded null byte")
        return load_connector(path, worker)

    monkeypatch.setattr(module, "load_connector", load)
    folder.write({"a": text("a"), "b": text("b"), "c": text("c")})
    with structlog.testing.capture_logs() as logged:
        files = folder.loaded()
    assert names(files.reload()) == ([], [], ["a", "c"])
    assert [(line["event"], line["file"]) for line in logged] == [
        ("connector file cannot be checked", str(folder.path / "b.json"))
    ]


@pytest.mark.parametrize(
    ("change", "removed", "put", "unchanged"),
    [
        ({}, "", "", "ab"),
        ({"b": text("b", **{"tasks.max": "2"})}, "", "b", "a"),
        ({"b": json.dumps({"name": "b", "config": json.loads(text("b"))}, indent=4)}, "", "", "ab"),
        ({"b": None}, "b", "", "a"),
        ({"a": None, "b": None}, "ab", "", ""),
        ({"c": text("c")}, "", "c", "ab"),
        ({"b": text("z")}, "b", "z", "a"),
        ({"b": None, "z": text("b")}, "b", "b", "a"),
        ({"a": text("c"), "b": text("z")}, "ab", "cz", ""),
        ({"b": "{"}, "", "", "ab"),
        ({"b": text("b", **{"tasks.max": "q"})}, "", "", "ab"),
        ({"b": text("b", topics="a")}, "", "", "ab"),
        ({"b": text("a")}, "", "", "ab"),
        ({"c": text("b")}, "", "", "ab"),
        ({"c": text("c", topics="b")}, "", "", "ab"),
        ({"a": text("b"), "b": text("a")}, "", "", "ab"),
        ({"a": text("a", topics="b"), "b": text("b", topics="a")}, "", "ab", ""),
        ({"a": text("b"), "b": None}, "ab", "b", ""),
        ({"b": text("a"), "a": None}, "ab", "a", ""),
        ({"a": None, "c": text("c", topics="a")}, "a", "c", "b"),
    ],
    ids=[
        "nothing",
        "a key",
        "only its form",
        "one gone",
        "all gone",
        "a new one",
        "a name inside",
        "a file's name",
        "both names inside",
        "not JSON",
        "not valid",
        "another's output",
        "another's name",
        "a new one with another's name",
        "a new one with another's output",
        "names swapped",
        "topics swapped",
        "the name of a later one that is gone",
        "the name of an earlier one that is gone",
        "a new one with the output of one that is gone",
    ],
)
def test_what_has_become_of_the_files(
    folder: Folder, change: dict[str, str | None], removed: str, put: str, unchanged: str
) -> None:
    """Of a connector whose file has another name in it now the old one is removed; what is faulty is unchanged."""
    folder.write({"a": text("a"), "b": text("b")})
    files = folder.loaded()
    folder.write(change)
    assert names(files.reload()) == (list(removed), list(put), list(unchanged))
    after = sorted({*unchanged, *put})
    assert names(files.reload()) == ([], [], after)


def test_a_running_connector_keeps_what_was_read(folder: Folder) -> None:
    """Its faulty file is logged, and is compared with what was read before it was faulty."""
    folder.write({"a": text("a")})
    files = folder.loaded()
    folder.write({"a": "{"})
    with structlog.testing.capture_logs() as logged:
        assert names(files.reload()) == ([], [], ["a"])
    assert [(line["event"], line["then"]) for line in logged] == [(NOT_VALID, GOING_ON)]
    folder.write({"a": text("a")})
    assert names(files.reload()) == ([], [], ["a"])
    folder.write({"a": text("a", **{"tasks.max": "2"})})
    (put,) = files.reload().put
    assert put.config.tasks_max == 2


def test_a_name_of_until_now_takes_a_restart(folder: Folder) -> None:
    """Two running connectors that swap their names: the log says that the worker has to be started again."""
    folder.write({"a": text("a"), "b": text("b")})
    files = folder.loaded()
    folder.write({"a": text("b"), "b": text("a")})
    with structlog.testing.capture_logs() as logged:
        files.reload()
    assert ["start the worker again" in line["error"] for line in logged] == [True, True]
    assert [file.config.name for file in folder.loaded().reload().put] == []


def test_a_name_that_was_given_up_is_free(folder: Folder) -> None:
    """Another file may take it, once the connector that had it is removed."""
    folder.write({"a": text("a"), "b": text("b")})
    files = folder.loaded()
    folder.write({"b": text("z")})
    files.reload()
    folder.write({"c": text("b")})
    assert names(files.reload()) == ([], ["b"], ["a", "z"])


def test_a_named_file_that_lies_in_the_folder_counts_once(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also by a relative path and by a link; it stays named: gone, it is faulty and its connector goes on."""
    folder.write({"a": text("a"), "b": text("b"), "c": text("c")})
    monkeypatch.chdir(folder.parent)
    link = folder.parent / "link.json"
    link.symlink_to(folder.path / "b.json")
    files = ConnectorFiles(folder.worker(), [Path("connectors.d/a.json"), link])
    with structlog.testing.capture_logs() as logged:
        assert [file.config.name for file in files.load()] == ["a", "b", "c"]
        assert names(files.reload()) == ([], [], ["a", "b", "c"])
    assert logged == []
    folder.write({"a": None, "c": None})
    with structlog.testing.capture_logs() as logged:
        assert names(files.reload()) == (["c"], [], ["a", "b"])
    assert [(line["file"], line["then"]) for line in logged] == [("connectors.d/a.json", GOING_ON)]


def test_a_folder_that_is_not_there(folder: Folder) -> None:
    """At the start it has no files; later its connectors go on, as a disk may be back; each time the log says so."""
    worker, away = folder.worker(), folder.parent / "away"
    folder.write({"a": text("a")})
    folder.path.rename(away)
    files = ConnectorFiles(worker, [])
    with structlog.testing.capture_logs() as logged:
        assert files.load() == ()
    assert [(line["event"], line["folder"]) for line in logged] == [("connectors.dir cannot be read", str(folder.path))]
    away.rename(folder.path)
    assert names(files.reload()) == ([], ["a"], [])
    folder.path.rename(away)
    with structlog.testing.capture_logs() as logged:
        assert names(files.reload()) == ([], [], ["a"])
    assert logged[0]["event"] == "connectors.dir cannot be read"
    away.rename(folder.path)
    assert names(files.reload()) == ([], [], ["a"])
    folder.write({"a": None})
    assert names(files.reload()) == (["a"], [], [])


def test_each_file_is_read_a_few_times_however_many_there_are(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    """For clashes every other file is read once a round, not once for each file."""
    read: list[Path] = []

    def counted(path: Path) -> OtherFile:
        read.append(path)
        return other_file(path)

    monkeypatch.setattr(module, "other_file", counted)
    everything = [f"c{number}" for number in range(12)]
    folder.write({name: text(name) for name in everything})
    files = folder.loaded()
    assert len(read) <= len(everything)
    read.clear()
    folder.write({name: text(name, **{"tasks.max": "2"}) for name in everything})
    assert len(files.reload().put) == len(everything)
    assert len(read) <= len(everything)


def volume_text(number: int) -> str:
    return text("a", **{"tasks.max": str(number)})


@pytest.fixture
def volume(tmp_path: Path) -> ConfigMapVolume:
    return ConfigMapVolume(tmp_path / "volume", {"a.json": volume_text(1), "b.json": text("b")})


def test_files_of_a_config_map(tmp_path: Path, volume: ConfigMapVolume) -> None:
    """Its links are its files: what is changed, added and removed in it takes effect, and each file is read once."""
    worker = load_worker(worker_file(tmp_path, **{"connectors.dir": str(volume.folder)}))
    files = ConnectorFiles(worker, [])
    assert [file.path for file in files.load()] == [volume.folder / "a.json", volume.folder / "b.json"]
    volume.write({"a.json": volume_text(1), "b.json": text("b")})
    assert names(files.reload()) == ([], [], ["a", "b"])
    volume.write({"a.json": volume_text(2), "b.json": text("b")})
    changes = files.reload()
    assert names(changes) == ([], ["a"], ["b"])
    assert changes.put[0].config.tasks_max == 2
    volume.write({"a.json": volume_text(2), "c.json": text("c")})
    assert names(files.reload()) == (["b"], ["c"], ["a"])


def test_paths_of_a_config_map_do_not_change_with_it(tmp_path: Path, volume: ConfigMapVolume) -> None:
    """Relative ones count from the volume, not from the folder of a time that is gone after the next change."""
    content = {"a.json": text("a", **{"snapshot.location": "snapshots"})}
    volume.write(content)
    worker = load_worker(worker_file(tmp_path, **{"connectors.dir": str(volume.folder)}))
    files = ConnectorFiles(worker, [])
    (file,) = files.load()
    assert file.config.snapshot_location == str(volume.folder / "snapshots")
    volume.write(content)
    assert names(files.reload()) == ([], [], ["a"])


def until_noticed(change: Callable[[], object], noticed: Callable[[], object], what: str) -> None:
    """Changes the folder again and again until that is noticed: nothing says when the watch has begun."""

    def is_noticed() -> object:
        change()
        return noticed()

    wait_until(is_noticed, what, TIMEOUT_S)


def watchers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == WATCH]


@contextmanager
def watching(files: ConnectorFiles, changed: Callable[[], object]) -> Iterator[None]:
    """Watches during the block, after which nobody does."""
    with files.watching(changed):
        yield
    wait_until(lambda: not watchers(), "the watch has ended", TIMEOUT_S)


def test_a_changed_folder_calls_back(folder: Folder) -> None:
    """New, changed and removed files are there to be read when it does; after the block nobody watches."""
    folder.write({"b": text("b")})
    files = folder.loaded(**{"connectors.watch": "true"})
    seen: list[tuple[list[str], list[str], list[str]]] = []
    put_a: tuple[list[str], list[str], list[str]] = [], ["a"], ["b"]
    with watching(files, lambda: seen.append(names(files.reload()))):
        until_noticed(lambda: folder.write({"a": text("a")}), lambda: put_a in seen, "a new file is noticed")
        folder.write({"a": text("a", **{"tasks.max": "2"})})
        wait_until(lambda: seen.count(put_a) == 2, "a changed file is noticed", TIMEOUT_S)
        folder.write({"b": None})
        wait_until(lambda: (["b"], [], ["a"]) in seen, "a removed file is noticed", TIMEOUT_S)


def test_a_replaced_config_map_calls_back(tmp_path: Path, volume: ConfigMapVolume) -> None:
    """The one step in which Kubernetes replaces all files is noticed, and the new ones are read."""
    settings = {"connectors.dir": str(volume.folder), "connectors.watch": "true"}
    files = ConnectorFiles(load_worker(worker_file(tmp_path, **settings)), [])
    files.load()
    put: list[int | None] = []
    rounds = iter(range(2, 10_000))

    def changed() -> None:
        put.extend(file.config.tasks_max for file in files.reload().put)

    def replace() -> int:
        number = next(rounds)
        volume.write({"a.json": volume_text(number), "b.json": text("b")})
        return number

    with watching(files, changed):
        until_noticed(replace, lambda: put, "a replaced volume is noticed")
        last = replace()
        wait_until(lambda: last in put, "the last content is read", TIMEOUT_S)


@pytest.mark.parametrize("settings", [{}, {"connectors.watch": "false"}])
def test_a_folder_is_not_watched_unless_asked_for(folder: Folder, settings: dict[str, str]) -> None:
    """Without connectors.watch changes wait for SIGHUP."""
    with folder.loaded(**settings).watching(lambda: None):
        assert watchers() == []


def test_a_folder_that_cannot_be_watched_is_logged(folder: Folder) -> None:
    """The worker goes on, and an operator learns that changes wait for SIGHUP."""
    files = folder.loaded(**{"connectors.watch": "true"})
    folder.path.rmdir()
    with structlog.testing.capture_logs() as logged, watching(files, lambda: None):
        wait_until(lambda: logged, "the log says so", TIMEOUT_S)
    assert (logged[0]["event"], logged[0]["folder"]) == ("connectors.dir is not watched", str(folder.path))
