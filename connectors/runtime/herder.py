"""Starts, pauses and stops each connector to match its desired state: Kafka Connect's Herder, for one worker.

The desired state (config and target state, `specs/`) changes from any thread: by REST, by SIGHUP, by a changed
file. `reconcile`, which only the worker's own thread calls, takes each supervisor a step nearer to it. It waits for
none of them, so that connectors start and stop at the same time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Final

import structlog

from compactor.errors import FencedError
from connectors.clock import Clock
from connectors.config.connector import ConnectorConfig
from connectors.config.errors import FaultyConfigError
from connectors.config.files import ConnectorFile
from connectors.config.worker import WorkerConfig
from connectors.errors import ConflictError, NoThreadError, UsageError
from connectors.progress.observer import Observer
from connectors.runtime.lifecycle import RunState, TargetState
from connectors.runtime.specs.connector_files import FileChanges
from connectors.runtime.specs.connector_store import ConnectorStore
from connectors.runtime.specs.connectors import ConnectorSpec, ConnectorSpecs
from connectors.runtime.status import ConnectorState, Status
from connectors.runtime.supervised_connector import Connector
from connectors.runtime.supervisor import RunContext, Supervisor
from connectors.runtime.takeover import StartPlace
from connectors.threads import CallQueue

_log = structlog.get_logger()

_ENDING_S: Final = 5.0
"""How long (s) the end of a connector is waited for that shows STOPPED, a moment before it has ended."""
LOCKS_MS: Final = 5_000
"""How long the start waits for the connectors' locks, which are a few requests each, and the end until they are
given back."""


class Herder:
    """Runs the connectors of `files`, and those of `store`; without a store none is made, paused or stopped later.

    `changed` is called when something is to be reconciled. Any thread may call any method, except these: `take_locks`,
    `begin`, `reconcile`, `stop`, `release` are the worker's own. They, and what only reads, wait for no storage.
    """

    def __init__(
        self,
        worker: WorkerConfig,
        clock: Clock,
        observer: Observer,
        files: Sequence[ConnectorFile] = (),
        store: ConnectorStore | None = None,
        supervise: Callable[[WorkerConfig, ConnectorConfig, Clock, Observer], Supervisor] = Supervisor,
        locks_ms: int = LOCKS_MS,
    ) -> None:
        self.changed: Callable[[], object] = lambda: None
        # The supervisors that were made and not forgotten yet, by connector.
        self._supervisors: dict[str, Supervisor] = {}
        self.specs = ConnectorSpecs(worker, clock, files, store, self._say_changed, self._supervisors.copy)
        self._worker = worker
        self._clock = clock
        self._observer = observer
        self._supervise = supervise
        self._locks_ms = locks_ms
        self._graceful_ms = worker.task_shutdown_graceful_timeout_ms
        # Held for moments, while what runs is looked at or told something: never while anything is waited for.
        self._lock = threading.Lock()
        # Set by `begin`, once Spark is up: nothing is started before.
        self._context: RunContext | None = None
        # Drawn by `take_locks`, on the thread of `_lock_calls`; without one each connector draws its own.
        self._place = StartPlace(worker)
        # STOPPED connectors with an operation under way that allows no run (`stopped`).
        self._kept_stopped: set[str] = set()
        # Takes and gives back the locks of connectors and of the store, in the order in which that is asked for.
        self._lock_calls = CallQueue("owner-locks")

    def _say_changed(self) -> None:
        self.changed()

    # The worker's own thread calls these.

    def take_locks(self) -> None:
        """Takes the locks of all connectors that are to run, from before Spark has started.

        The worker's place among all starts on its storage location is drawn first, once for all of them: if it is
        frozen while it takes them over, a worker that starts meanwhile comes later for each. A storage that does not
        answer is waited for no longer than `locks_ms`: the locks only inform commands.
        """
        self._lock_calls.ask(self._place.draw)
        with self._lock:
            for name, spec in self.specs.all().items():
                if spec.wants_supervisor:
                    self._lock_calls.ask(partial(self._take_lock, self._supervisor_of(name, spec)))
        self._lock_calls.wait(self._locks_ms / 1000)

    def _take_lock(self, supervisor: Supervisor) -> None:
        supervisor.take_lock(self._place.start)

    def begin(self, context: RunContext) -> None:
        """Starts all connectors that are to run, in `context`."""
        self._context = context
        self.reconcile()

    def reconcile(self) -> None:
        """Takes each connector a step nearer to its desired state; waits for nothing."""
        with self._lock:
            specs = self.specs.all()
            if self._context is not None:
                self._context.query.share_among(len(specs))
            for name in sorted({*specs, *self._supervisors}):
                self._reconcile(name, specs.get(name))

    def _reconcile(self, name: str, spec: ConnectorSpec | None) -> None:
        supervisor, is_kept = self._supervisors.get(name), spec is not None and spec.wants_supervisor
        # A supervisor that was told to end does end, even if the connector is to run again by now: a new one runs it.
        if supervisor is not None and (_is_ending(supervisor) or not _has_config_of(supervisor, spec)):
            if not self._end(name, supervisor, finishes=is_kept):
                return
            supervisor = None
        if spec is None or not is_kept or self._context is None or name in self._kept_stopped:
            return
        supervisor = supervisor or self._supervisor_of(name, spec)
        supervisor.aim(spec.target)
        if supervisor.state is RunState.INIT:
            supervisor.start(self._context)

    def _supervisor_of(self, name: str, spec: ConnectorSpec) -> Supervisor:
        if name not in self._supervisors:
            self._supervisors[name] = self._supervise(self._worker, spec.config, self._clock, self._observer)
        return self._supervisors[name]

    def _end(self, name: str, supervisor: Supervisor, *, finishes: bool) -> bool:
        """Stops a supervisor, after a fold that runs if it `finishes`; returns whether it has ended, and forgets it."""
        supervisor.stop(drop_at_ms=None if finishes else self._clock.monotonic_ms() + self._graceful_ms)
        if not supervisor.join(0):
            return False
        try:
            self._forget(name, supervisor)
        except NoThreadError:
            return False
        return True

    def _forget(self, name: str, supervisor: Supervisor) -> None:
        """Forgets a supervisor that has ended. Raises NoThreadError if none can be started to give its lock back."""
        self._lock_calls.ask(supervisor.release)
        del self._supervisors[name]

    def fail(self, name: str, error: BaseException) -> None:
        """Makes a connector that was not started FAILED, for good."""
        self._supervisors[name].fail(error)

    def is_any_alive(self) -> bool:
        """Returns whether any connector runs, or will be started again by itself or with another config."""
        with self._lock:
            return any(each.is_alive() or self._is_replaced(name, each) for name, each in self._supervisors.items())

    def _is_replaced(self, name: str, supervisor: Supervisor) -> bool:
        """Returns whether the next `reconcile` starts another supervisor in place of this one."""
        spec = self.specs.find(name)
        if spec is None or not spec.wants_supervisor:
            return False
        return _is_ending(supervisor) or not _has_config_of(supervisor, spec)

    def is_fenced(self) -> bool:
        """Returns whether there is a connector, and each was taken over by another worker.

        One that is STOPPED was not: it may be resumed here.
        """
        with self._lock:
            supervisors = [self._supervisors.get(name) for name in self.specs.all()]
        return bool(supervisors) and all(each and isinstance(each.error, FencedError) for each in supervisors)

    def alive(self) -> list[str]:
        """Returns the names of the connectors that run, sorted."""
        with self._lock:
            return sorted(name for name, supervisor in self._supervisors.items() if supervisor.is_alive())

    def stop(self, drop_at_ms: int, until_ms: int) -> Iterator[str]:
        """Stops every connector; yields the names of those that have not ended by `until_ms` (monotonic)."""
        with self._lock:
            supervisors = dict(self._supervisors)
        for supervisor in supervisors.values():
            supervisor.stop(drop_at_ms=drop_at_ms)
        for name, supervisor in supervisors.items():
            if not supervisor.join(max(0, until_ms - self._clock.monotonic_ms()) / 1000):
                yield name

    def release(self, within_ms: int | None = None) -> list[BaseException | None]:
        """Gives all locks back; returns what each connector has ended with.

        A storage that does not answer is waited for no longer than `within_ms`, nor `locks_ms`: then `is_releasing`,
        and the locks end with this process, or a while later on an object store.
        """
        self.specs.end()
        with self._lock:
            supervisors = list(self._supervisors.values())
        with suppress(NoThreadError):  # the locks end with this process
            for supervisor in supervisors:
                self._lock_calls.ask(supervisor.release)
            self._lock_calls.ask(self.specs.release)
        self._lock_calls.wait((self._locks_ms if within_ms is None else min(within_ms, self._locks_ms)) / 1000)
        return [supervisor.error for supervisor in supervisors]

    @property
    def is_releasing(self) -> bool:
        """Whether locks are still being taken or given back."""
        return not self._lock_calls.wait(0)

    # What connector files say.

    def apply(self, changes: FileChanges) -> None:
        """Takes up what has become of the connector files; FAILED connectors of unchanged ones are started again.

        Waits for the storage, and raises StorageError if that does not say their targets: then nothing has changed.
        """
        targets = self.specs.stored_targets([file.config.name for file in changes.put])
        for name in changes.removed:
            if self.specs.remove_file(name):
                _log.info("connector file is gone, stopping the connector", connector=name)
        for file in changes.put:
            self._apply(file, targets[file.config.name])
        if changes.put:
            self.specs.warn_of_many()
        with self._lock:
            for name in changes.unchanged:
                self._restart_failed(name)
        self.changed()

    def _apply(self, file: ConnectorFile, stored: TargetState) -> None:
        name, supervisor = file.config.name, self._supervisors.get(file.config.name)
        try:
            self.specs.check_file(file)
            if supervisor is not None and isinstance(supervisor.error, FencedError):
                _log.info("connector ended: left as it is", connector=name, error=str(supervisor.error))
            elif self.specs.put_file(file, stored):
                _log.info("new connector file, starting the connector", connector=name, file=str(file.path))
            else:
                _log.info("connector file changed, restarting the connector", connector=name, file=str(file.path))
        except FaultyConfigError as error:
            _log.error("connector file is not valid", file=str(file.path), error=str(error))

    def _restart_failed(self, name: str) -> None:
        """Restarts a connector only if it is FAILED, or waits for an outage to end: its file is unchanged."""
        supervisor = self._supervisors.get(name)
        if supervisor is None:
            return
        if supervisor.has_failed() and not (self._context and self._context.once):
            if supervisor.status.waits:
                _log.info("connector file unchanged, waits for an outage to end: started again", connector=name)
            else:
                _log.info("connector file unchanged, FAILED: started again", connector=name)
            supervisor.restart()
        elif supervisor.is_alive():
            _log.info("connector file unchanged: left running", connector=name)
        else:
            _log.info("connector ended: left as it is", connector=name, error=str(supervisor.error))

    # REST and metrics ask these.

    def names(self) -> list[str]:
        """Returns the names of all connectors, sorted."""
        return sorted(self.specs.all())

    def configs(self) -> tuple[ConnectorConfig, ...]:
        """Returns the configs of all connectors."""
        return tuple(spec.config for spec in self.specs.all().values())

    def connectors(self) -> tuple[Connector, ...]:
        """Returns all connectors as they are now, by name."""
        return tuple(self._connector(name, spec) for name, spec in sorted(self.specs.all().items()))

    def connector(self, name: str) -> Connector:
        """Returns a connector as it is now. Raises NoConnectorError."""
        return self._connector(name, self.specs.get(name))

    def _connector(self, name: str, spec: ConnectorSpec) -> Connector:
        supervisor = self._supervisors.get(name)  # without the lock: a reader waits for no storage
        stopped = spec.target is TargetState.STOPPED
        status = supervisor.status if supervisor else Status(ConnectorState.STOPPED) if stopped else Status()
        if status.state is ConnectorState.STOPPED and not stopped:
            status = Status()  # it has ended to be started again, with another config
        return Connector(spec, status, supervisor)

    def restart(self, name: str) -> None:
        """Restarts a connector that is not STOPPED, also one that another worker has.

        Raises NoConnectorError, NoThreadError.
        """
        with self._lock:
            self.specs.get(name)
            supervisor = self._supervisors.get(name)
            if supervisor is not None and supervisor.join(0):
                self._forget(name, supervisor)
            elif supervisor is not None:
                supervisor.restart()
        self.changed()

    @contextmanager
    def stopped(self, name: str) -> Iterator[ConnectorConfig]:
        """Keeps a connector that is STOPPED from being started, and gives its config; a resume meanwhile follows then.

        Raises NoConnectorError, UsageError if it is not STOPPED, ConflictError if it is kept so already.
        """
        self._join_stopped(name)
        with self._lock:
            spec = self.specs.get(name)
            if spec.wants_supervisor or name in self._supervisors:
                raise UsageError(
                    "Connectors must be in the STOPPED state before their offsets can be modified. This can be done "
                    f"for the specified connector by issuing a 'PUT' request to the '/connectors/{name}/stop' endpoint"
                )
            if name in self._kept_stopped:
                raise ConflictError(f"Offsets of connector {name} are being changed.", "Ask again when that has ended.")
            self._kept_stopped.add(name)
        try:
            yield spec.config
        finally:
            with self._lock:
                self._kept_stopped.discard(name)
            self.changed()

    def _join_stopped(self, name: str) -> None:
        """Waits for the end of a supervisor that shows STOPPED: it does so a moment before."""
        supervisor = self._supervisors.get(name)
        if supervisor is None or not _is_ending(supervisor) or supervisor.status.state is not ConnectorState.STOPPED:
            return
        supervisor.join(_ENDING_S)
        with self._lock:
            if self._supervisors.get(name) is supervisor:
                self._end(name, supervisor, finishes=False)
        self._lock_calls.wait(_ENDING_S)  # the operation takes the lock that is given back here


def _is_ending(supervisor: Supervisor) -> bool:
    return supervisor.target is TargetState.STOPPED


def _has_config_of(supervisor: Supervisor, spec: ConnectorSpec | None) -> bool:
    """Returns whether `supervisor` has the config of `spec`, which wants one."""
    return spec is not None and spec.wants_supervisor and spec.config == supervisor.config
