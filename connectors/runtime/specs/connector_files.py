"""The connector files of a worker: those named on the command line, and those in `connectors.dir`.

Named files are read strictly at the start: the worker does not start over a faulty one. In the folder each file stands
for itself, at the start and later: a faulty one is logged and left out, and of a connector that runs the file as it was
read before counts on.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import structlog
from msgspec import Struct

from compactor.errors import KeyfoldError
from connectors.config.errors import Fault, FaultyConfigError
from connectors.config.files import ConnectorFile, OtherFile, clashes, load_connector, load_connectors, other_file
from connectors.config.worker import WorkerConfig
from connectors.threads import CancellableThread

_log = structlog.get_logger()


class FileChanges(Struct, frozen=True):
    """What has become of the files since they were read: by the names of connectors.

    `removed` has the names of files that are gone, or have another name in them now; `put` the files that are new or
    say something else; `unchanged` the rest, also of a file that is not valid any more.
    """

    removed: tuple[str, ...] = ()
    put: tuple[ConnectorFile, ...] = ()
    unchanged: tuple[str, ...] = ()


class ConnectorFiles:
    """Reads the files `named` and those in the worker's `connectors.dir`, and remembers them by their connectors."""

    def __init__(self, worker: WorkerConfig, named: Sequence[Path]) -> None:
        self._worker = worker
        self._named = tuple(named)
        self._known: dict[str, ConnectorFile] = {}
        self._others: dict[Path, OtherFile] = {}

    def load(self) -> tuple[ConnectorFile, ...]:
        """Reads all files. Raises ConfigError with all faults of the named ones."""
        self._known = {file.config.name: file for file in load_connectors(self._named, self._worker)}
        self._others.clear()
        for path in self._in_folder() or ():
            file = self._read(path, "left out")
            if file is not None:
                self._known[file.config.name] = file
        return tuple(self._known.values())

    def reload(self) -> FileChanges:
        """Reads all files again and returns what is different; what is faulty is logged, and stays as it was.

        A folder that cannot be read is faulty: its files count as they were read before.
        """
        self._others.clear()
        folder = self._in_folder()
        removed = self._forget_removed(folder)
        by_path = {file.path: file for file in self._known.values()}
        put, unchanged = [], []
        for path, file in by_path.items():
            name = file.config.name
            read_again = self._read(path, "going on with what was read before")
            if read_again is None or read_again.config == file.config:
                unchanged.append(name)
                continue
            put.append(read_again)
            removed += [name] if read_again.config.name != name else []
            del self._known[name]
            self._known[read_again.config.name] = read_again
        for path in folder or ():
            if path not in by_path and (read_again := self._read(path, "left out")) is not None:
                put.append(read_again)
                self._known[read_again.config.name] = read_again
        return FileChanges(tuple(removed), tuple(put), tuple(unchanged))

    def _forget_removed(self, folder: Collection[Path] | None) -> list[str]:
        """Forgets the files that are in the folder no more, before others take their names; returns the names."""
        if folder is None:
            return []
        kept = {*self._named, *folder}
        gone = [name for name, file in self._known.items() if file.path not in kept]
        for name in gone:
            del self._known[name]
        return gone

    @contextmanager
    def watching(self, changed: Callable[[], object]) -> Iterator[None]:
        """Calls `changed` during the block after each change in the folder, if `connectors.watch` is set."""
        folder = self._worker.connectors_path
        if folder is None or not self._worker.connectors_watch:
            yield
            return
        watch = CancellableThread("connectors-dir", partial(_watch, folder, changed))
        watch.start()
        try:
            yield
        finally:
            watch.stop()

    def _in_folder(self) -> list[Path] | None:
        """Lists the connector files in the folder; None if it cannot be read."""
        folder = self._worker.connectors_path
        if folder is None:
            return []
        try:
            files = sorted(path for path in folder.iterdir() if path.suffix == ".json" and path.is_file())
        except OSError as error:
            _log.error("connectors.dir cannot be read", folder=str(folder), error=error.strerror)
            return None
        named = {path.resolve() for path in self._named}
        return [path for path in files if path.resolve() not in named]

    def _read(self, path: Path, then: str) -> ConnectorFile | None:
        """Reads a file; returns None if it is not valid, alone or together with the others."""
        try:
            file = load_connector(path, self._worker)
            before = next((file for file in self._known.values() if file.path == path), None)
            if before is None or file.config != before.config:
                self._refuse_clashes(file)
            return file
        except KeyfoldError as error:
            _log.error("connector file is not valid", file=str(path), then=then, error=str(error))
        except Exception:  # noqa: BLE001  # a defect that one file meets ends no other one's connector
            _log.exception("connector file cannot be checked", file=str(path), then=then)
        return None

    def _refuse_clashes(self, file: ConnectorFile) -> None:
        """Raises ConfigError if `file` has the name, or an output topic, of another file's connector.

        Of the others' files the present content counts; of names also those that running connectors were started with.
        """
        name = file.config.name
        others = [other for other in self._known.values() if other.path != file.path]
        until_now = (other.path for other in others if other.config.name == name)
        faults = clashes(file.config, [self._other(other.path) for other in others]) or [
            Fault("name", f'"{name}" is that of {path} until now; start the worker again.') for path in until_now
        ]
        if faults:
            raise FaultyConfigError(str(file.path), faults)

    def _other(self, path: Path) -> OtherFile:
        """Reads a file once a round, however many others are held against it."""
        if path not in self._others:
            self._others[path] = other_file(path)
        return self._others[path]


def _watch(folder: Path, changed: Callable[[], object], stop: threading.Event) -> None:
    """Calls `changed` a moment after each change in `folder`, until `stop` is set; if it cannot, logs why."""
    from watchfiles import watch

    try:
        for _ in watch(folder, stop_event=stop, recursive=False, raise_interrupt=False):
            changed()
    except (OSError, RuntimeError) as error:  # no such folder, or the system watches no more folders
        then = "send the worker SIGHUP after a change"
        _log.error("connectors.dir is not watched", folder=str(folder), error=str(error), then=then)
