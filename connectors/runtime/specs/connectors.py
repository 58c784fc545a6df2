"""Knows what each connector of a worker is to be: its config and target state, of its file or as REST has it.

A change is checked, then stored, then known: in this order, and each but the last without a lock, as a check runs what
a user has written, on as many names as it has, and a store may answer late. So another change may come in between, and
is met so:

    put, delete, target    of one connector: one after the other (`store_ownership`)
    put and a file         what is being stored is held against files, and their configs against it, before it is
                           stored; a put that was checked for other settings than there are by then is checked again
    target and a file      the state is set on what the file says by then; of one that is gone it stays stored only
    store lost, and again  all that is stored is taken up, with no change under way
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

import structlog
from msgspec import Struct
from msgspec.structs import replace

from compactor.catalog import owner_lock
from connectors.clock import Clock
from connectors.config.connector import ConnectorConfig
from connectors.config.errors import Fault, FaultyConfigError
from connectors.config.files import ConnectorFile, OtherFile, checked, clashes
from connectors.config.stores import connector_storage
from connectors.config.worker import WorkerConfig
from connectors.errors import ConflictError, NoConnectorError
from connectors.runtime.lifecycle import TargetState
from connectors.runtime.specs.connector_limit import most_connectors, open_files_limit
from connectors.runtime.specs.connector_store import ConnectorStore, StoredConnector
from connectors.runtime.specs.store_ownership import StoreOwnership

_log = structlog.get_logger()

Result = TypeVar("Result")

TRIES: Final = 3
"""How often a config is checked for the settings that there are, which others may change during the check."""
MEND_FILE: Final = "Change the file, and send the worker SIGHUP."
MAKE_ROOM: Final = "Delete one, or raise connectors.max in the worker file and start the worker again."


def changed_by_others(name: str) -> ConflictError:
    """Returns the error of a connector that did not stay as it was while its config was checked, TRIES times."""
    return ConflictError(f"Connector {name} was changed by others again and again.", "Ask again.")


class ConnectorSpec(Struct, frozen=True):
    """What a connector is to be; `file` is the connector file that it comes from, None if it was made over REST.

    `since_ms` is when this worker came to know it, 0 from its start on: what was before is another connector's of the
    name.
    """

    config: ConnectorConfig
    target: TargetState = TargetState.RUNNING
    file: Path | None = None
    since_ms: int = 0

    @property
    def wants_supervisor(self) -> bool:
        """Whether a supervisor is to be there for it: not if it is to be STOPPED."""
        return self.target is not TargetState.STOPPED


class ConnectorSpecs:
    """What the connectors of `files` and those of `store` are to be; without a store REST changes nothing.

    `changed` is called after a change over REST, and when another process's changes were taken up. `running` gives the
    names of the connectors that have not ended yet, deleted ones among them; it is called under a lock, and waits for
    nothing. All methods may be called from any thread.
    """

    def __init__(
        self,
        worker: WorkerConfig,
        clock: Clock,
        files: Sequence[ConnectorFile],
        store: ConnectorStore | None,
        changed: Callable[[], object],
        running: Callable[[], Iterable[str]] = tuple,
    ) -> None:
        self._worker = worker
        self._clock = clock
        self._has_begun = False
        """Whether those are known that were there before this process."""
        self._store = store
        self._ownership = None if store is None else StoreOwnership(store, clock, self._take_up)
        self._changed = changed
        self._running = running
        self._most = most_connectors(worker.connectors_max, open_files_limit())
        """How many connectors there may be before REST makes one more."""
        self._lock = threading.Lock()
        """Held for moments, while the values below are looked at together or changed."""
        targets = self.stored_targets([file.config.name for file in files])
        specs = (ConnectorSpec(file.config, targets[file.config.name], file.path) for file in files)
        self._specs = {spec.config.name: spec for spec in specs}
        """What is to be, by name; changed under the lock, read without it."""
        self._storing: dict[str, ConnectorSpec] = {}
        """Those that are being stored: nothing else may take their name or output until that has ended."""
        if self._ownership is not None:
            self._ownership.begin()
        self._has_begun = True
        self.warn_of_many()

    # What is read waits for nothing.

    def all(self) -> dict[str, ConnectorSpec]:
        """Returns what each connector is to be, by name."""
        return self._specs.copy()

    def find(self, name: str) -> ConnectorSpec | None:
        """Returns what a connector is to be; None if there is none."""
        return self._specs.get(name)

    def get(self, name: str) -> ConnectorSpec:
        """Returns what a connector is to be. Raises NoConnectorError."""
        spec = self._specs.get(name)
        if spec is None:
            raise NoConnectorError(f"Connector {name} not found")
        return spec

    # What REST changes waits for the store.

    def settings_of(self, name: str, *, only_new: bool = False) -> Mapping[str, str]:
        """Returns the settings of a connector that is to be changed, none if it is to be made; see `put`.

        Raises ConflictError if it exists and `only_new`, or comes from a file; BusyError, StorageError.
        """
        self._owned(name).ensure()  # which may take up connectors that another worker has left, this one among them
        before = self._changeable(name, only_new=only_new)
        return before.config.given if before else {}

    def put(
        self,
        name: str,
        changed: Callable[[Mapping[str, str]], ConnectorConfig],
        target: TargetState | None = None,
        *,
        only_new: bool = False,
    ) -> bool:
        """Makes a connector, or changes its config; returns whether it was made. It is stored when this returns.

        `changed` returns the config for the settings that there are, none of a new one. It is called without any lock,
        as it checks what a user has written, and again if another change comes between.
        `target`: the state of a new one, RUNNING if it is not given; a changed one keeps its own. Raises what
        `changed` raises; ConflictError if it exists and `only_new`, comes from a file, or is new and another process
        runs it or it would be one more than `connectors.max`; FaultyConfigError if it clashes with another; BusyError,
        StorageError if it cannot be stored: then nothing has changed.
        """
        ownership = self._owned(name)
        for _ in range(TRIES):
            ownership.ensure()
            before = self._changeable(name, only_new=only_new)
            config = changed(before.config.given if before else {})
            if before is None:
                self._refuse_run_elsewhere(name)
            state = before.target if before else target or TargetState.RUNNING
            spec = ConnectorSpec(config, state, since_ms=self._since_ms(before))
            with ownership.changing(name):
                is_stored = self._reserve(name, before, spec)
                if is_stored:
                    self._store_config(ownership, name, spec)
            if is_stored:
                made = before is None
                _log.info("connector made over REST" if made else "connector's config set over REST", connector=name)
                self._changed()
                return made
        raise changed_by_others(name)

    def clashes(self, config: ConnectorConfig) -> tuple[Fault, ...]:
        """Returns the faults of a config with the connectors that there are, but one of its own name."""
        return clashes(config, _other_files(item for item in self.all().items() if item[0] != config.name))

    def _changeable(self, name: str, *, only_new: bool) -> ConnectorSpec | None:
        """Returns what the connector is to be, None if there is none. Raises ConflictError if it is not to be changed.

        That is if it comes from a file, or is there and `only_new`.
        """
        before = self._refuse_file(name)
        if before is not None and only_new:
            raise ConflictError(f"Connector {name} already exists")
        return before

    def _refuse_run_elsewhere(self, name: str) -> None:
        """Raises ConflictError if another process has the folder of a connector that there is none of here.

        That is one of another worker's files, or one that a command works on: it would be fenced, and its look-ups and
        offsets be answered here. Waits for the storage, and raises StorageError.
        """
        owner = owner_lock.live_owner(connector_storage(self._worker, name))
        if owner is not None and owner.process != owner_lock.PROCESS:
            raise ConflictError(
                f"Connector {name} is run by another process on this storage.location: {owner}.",
                "Stop it there, or choose another name.",
            )

    def _reserve(self, name: str, before: ConnectorSpec | None, spec: ConnectorSpec) -> bool:
        """Takes name and output of a connector that is about to be stored; False if it is not `before` any more.

        Raises FaultyConfigError if it clashes, ConflictError if it is new and there are as many as there may be.
        """

        def take() -> bool:
            if self._specs.get(name) is not before:
                return False
            if before is None:
                self._refuse_too_many()
            self._storing[name] = spec
            return True

        return self._unless_clashing(spec.config, None, take)

    def _refuse_too_many(self) -> None:
        """Raises ConflictError if there are as many connectors as there may be; called under the lock.

        A STOPPED one counts, as resuming it is never refused; a deleted one counts until it has ended, as it has its
        threads and files until then.
        """
        count = len({*self._specs, *self._storing, *self._running()})
        if count >= self._most:
            why = "" if self._worker.connectors_max is not None else ", from the limit of open files (ulimit -n)"
            raise ConflictError(f"Connectors on this worker: {count}; connectors.max is {self._most}{why}.", MAKE_ROOM)

    def _store_config(self, ownership: StoreOwnership, name: str, spec: ConnectorSpec) -> None:
        stored = StoredConnector(name=name, config=spec.config.given, target_state=spec.target)
        try:
            ownership.write(lambda store: store.put(stored))
            with self._lock:
                self._specs[name] = spec
        finally:
            with self._lock:
                del self._storing[name]

    def delete(self, name: str) -> None:
        """Forgets a connector that was made over REST, so that it ends; what it keeps stays.

        Raises NoConnectorError, ConflictError, BusyError, StorageError.
        """
        ownership = self._owned(name)
        ownership.ensure()
        with ownership.changing(name):
            self._refuse_file(name)
            self.get(name)
            ownership.write(lambda store: store.delete(name))
            with self._lock:
                self._specs.pop(name, None)
        _log.info("connector deleted over REST", connector=name)
        self._changed()

    def target(self, name: str, state: TargetState) -> None:
        """Sets the target state of a connector; it is stored when this returns.

        That of a connector of a file is stored by the worker that has the file, even if another one has the store.
        Raises NoConnectorError, ConflictError, BusyError, StorageError.
        """
        ownership = self._owned()
        write = ownership.write
        try:
            ownership.ensure()
        except ConflictError:
            known = self.find(name)
            if known is None or known.file is None:
                raise
            write = ownership.write_beside
        with ownership.changing(name):
            spec = self.get(name)
            if spec.file is not None:
                write(lambda store: store.put_target(name, state))
            else:
                stored = StoredConnector(name=name, config=spec.config.given, target_state=state)
                ownership.write(lambda store: store.put(stored))
            with self._lock:  # its file may have changed meanwhile, or gone
                self._specs[name] = replace(self.get(name), target=state)
        _log.info("connector's target state set over REST", connector=name, state=state.value)
        self._changed()

    def end(self) -> None:
        """Stores nothing any more from here on: another process may have the store soon. Waits for nothing."""
        if self._ownership is not None:
            self._ownership.end()

    def release(self) -> None:
        """Gives the store back, once no change is under way; waits for the store."""
        if self._ownership is not None:
            self._ownership.release()

    # What files say.

    def stored_targets(self, names: Collection[str]) -> dict[str, TargetState]:
        """Reads what connectors of files are to be: RUNNING without a store. Waits for it, and raises StorageError."""
        return dict.fromkeys(names, TargetState.RUNNING) if self._store is None else self._store.targets(names)

    def remove_file(self, name: str) -> bool:
        """Forgets the connector of a file that is gone; False if its file was refused, as REST's has the name."""
        with self._lock:
            spec = self._specs.get(name)
            if spec is None or spec.file is None:
                return False
            del self._specs[name]
            return True

    def check_file(self, file: ConnectorFile) -> None:
        """Raises FaultyConfigError if the file's connector clashes with another of this worker."""
        self._unless_clashing(file.config, file.path, lambda: None)

    def put_file(self, file: ConnectorFile, stored: TargetState) -> bool:
        """Takes up a file that is new or has changed; returns whether it is new. Raises FaultyConfigError.

        `stored` is what a new one is to be: of one that is known REST may have changed that since it was read.
        """
        name = file.config.name

        def take() -> bool:
            before = self._specs.get(name)
            target = stored if before is None else before.target
            self._specs[name] = ConnectorSpec(file.config, target, file.path, self._since_ms(before))
            return before is None

        return self._unless_clashing(file.config, file.path, take)

    def warn_of_many(self) -> None:
        """Warns if there are more connectors than there may be: those of files and stored ones are not refused."""
        count = len(self._specs)
        if count > self._most:
            _log.warning("more connectors than connectors.max", connectors=count, max=self._most)

    # What is stored.

    def _take_up(self, stored: Sequence[StoredConnector]) -> None:
        """Makes the connectors that were made over REST those that are stored, once this process has the store."""
        names = {connector.name for connector in stored}
        with self._lock:
            for name in [name for name, spec in self._specs.items() if spec.file is None and name not in names]:
                _log.info("connector was deleted by another worker, stopping it", connector=name)
                del self._specs[name]
        for connector in stored:
            try:
                config = checked({**connector.config, "name": connector.name}, self._worker)
                since_ms = self._since_ms(self._specs.get(connector.name))
                spec = ConnectorSpec(config, connector.target_state, since_ms=since_ms)
                self._unless_clashing(config, None, partial(self._specs.__setitem__, connector.name, spec))
            except FaultyConfigError as error:  # a file has its name now, for one; it stays stored
                _log.error("connector made over REST is left out", connector=connector.name, error=str(error))
        self._changed()

    def _since_ms(self, before: ConnectorSpec | None) -> int:
        """Returns since when a connector counts that follows `before`: since now if there was none."""
        if before is not None:
            return before.since_ms
        return self._clock.now_ms() if self._has_begun else 0

    def _owned(self, name: str | None = None) -> StoreOwnership:
        """Returns what changes are stored with. Raises ConflictError if there is no store, or `name` is a file's."""
        if name is not None:
            self._refuse_file(name)
        if self._ownership is None:
            said = "The worker does not listen: it keeps no connectors but those of its files."
            raise ConflictError(said, "Ask one that runs, and has listeners.")
        return self._ownership

    def _refuse_file(self, name: str) -> ConnectorSpec | None:
        """Returns what the connector is to be, None if there is none. Raises ConflictError if a file says that."""
        spec = self._specs.get(name)
        if spec is not None and spec.file is not None:
            raise ConflictError(f"Connector {name} comes from the file {spec.file}.", MEND_FILE)
        return spec

    def _unless_clashing(self, config: ConnectorConfig, file: Path | None, take: Callable[[], Result]) -> Result:
        """Calls `take`, which takes name and outputs of `config`, under the lock, once no other connector has them.

        `file` is the one that `config` comes from, None if it was sent over REST. Connectors are compared without
        the lock, and once more with all if some have come meanwhile. Raises FaultyConfigError if another connector of
        this worker has the name, or topics that do not fit together with those of `config`.
        """
        compared: list[ConnectorSpec] = []
        while True:
            with self._lock:
                known = (*self._specs.items(), *self._storing.items())
                others = [(name, spec) for name, spec in known if name != config.name or spec.file != file]
                seen = set(map(id, compared))
                if seen.issuperset(id(spec) for _, spec in others):
                    return take()
            compared += [spec for _, spec in others]
            faults = clashes(config, _other_files(others))
            if faults:
                raise FaultyConfigError(config.name, faults)


def _other_files(specs: Iterable[tuple[str, ConnectorSpec]]) -> list[OtherFile]:
    return [OtherFile(spec.file or Path("this worker"), name, spec.config) for name, spec in specs]
