"""Holds what a worker's connectors are to be, and makes them that: Kafka Connect's Herder, for one worker.

What each connector is to be (its config and target state, `connector_specs`) changes from any thread: by REST, by
SIGHUP, by a changed file. `reconcile`, which only the worker's own thread calls, starts, pauses and stops supervisors
until they are that; it waits for none of them, so that connectors start and stop beside one another.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Final

import structlog

from compactor.errors import FencedError
from connectors.clock import Clock
from connectors.config.connector import ConnectorConfig
from connectors.config.errors import FaultyConfigError
from connectors.config.files import ConnectorFile
from connectors.config.worker import WorkerConfig
from connectors.errors import ConflictError, UsageError
from connectors.progress.observer import Observer
from connectors.runtime.connector_files import FileChanges
from connectors.runtime.connector_specs import ConnectorSpecs
from connectors.runtime.connector_store import ConnectorStore, TargetState
from connectors.runtime.status import ConnectorState, Status
from connectors.runtime.supervised_connector import Connector, ConnectorSpec, RunContext, SupervisedConnector
from connectors.runtime.supervisor import Supervisor
from connectors.runtime.takeover import StartPlace
from connectors.threads import CallQueue

_log = structlog.get_logger()

_ENDING_S: Final = 5.0
"""How long (s) the end of a connector is waited for that shows STOPPED, a moment before it has ended."""
HOLD_S: Final = 5.0
"""How long (s) the start waits for the connectors' locks, which are a few requests each."""
RELEASE_S: Final = 5.0
"""How long (s) the end waits for them to be given back."""


class Herder:
    """Runs the connectors of `files`, and those of `store`; without a store none is made, paused or stopped later.

    `changed` is called when something is to be reconciled. All methods may be called from any thread but those of the
    worker's own: `hold`, `begin`, `reconcile`, `stop`, `release`. These, and what only reads, wait for no storage.
    """

    def __init__(
        self,
        worker: WorkerConfig,
        clock: Clock,
        observer: Observer,
        files: Sequence[ConnectorFile] = (),
        store: ConnectorStore | None = None,
    ) -> None:
        self.changed: Callable[[], object] = lambda: None
        self._worker = worker
        self._clock = clock
        self._observer = observer
        self._runs: dict[str, SupervisedConnector] = {}
        self._specs = ConnectorSpecs(worker, clock, files, store, self._say_changed, self._runs.copy)
        self._lock = threading.Lock()
        """Held for moments, while what runs is looked at or told something: never while anything is waited for."""
        self._context: RunContext | None = None
        self._place = StartPlace(worker)
        """Drawn by `hold`, on the thread of `_locks`; without one each connector draws its own."""
        self._topics_reset: dict[str, dict[str, int]] = {}
        self._kept_stopped: set[str] = set()
        self._locks = CallQueue("owner-locks")
        """Takes and gives back the locks of connectors and of the store, in the order in which that is asked for."""

    def _say_changed(self) -> None:
        self.changed()

    # What the worker's own thread calls.

    def hold(self) -> None:
        """Takes the locks of all connectors that are to run, from before Spark has started.

        The worker's place among all starts on its storage location is drawn first, once for all of them: if it is
        frozen while it takes them over, a worker that starts meanwhile comes later for each. A storage that does not
        answer is waited for no longer than HOLD_S: the locks only inform commands.
        """
        self._locks.ask(self._place.draw)
        with self._lock:
            for name, spec in self._specs.all().items():
                if spec.target is not TargetState.STOPPED:
                    self._locks.ask(partial(self._hold, self._run_of(name, spec).supervisor))
        self._locks.wait(HOLD_S)

    def _hold(self, supervisor: Supervisor) -> None:
        supervisor.hold(self._place.start)

    def begin(self, context: RunContext) -> None:
        """Starts all connectors that are to run, in `context`."""
        self._context = context
        self.reconcile()

    def reconcile(self) -> None:
        """Takes each connector a step nearer to what it is to be; waits for nothing."""
        with self._lock:
            specs = self._specs.all()
            if self._context is not None:
                self._context.query.share_among(len(specs))
            for name in sorted({*specs, *self._runs}):
                self._reconcile(name, specs.get(name))

    def _reconcile(self, name: str, spec: ConnectorSpec | None) -> None:
        run = self._runs.get(name)
        stays = spec is not None and spec.target is not TargetState.STOPPED
        # What was told to end ends, whatever it is to be by now.
        if run is not None and (run.ending or not (stays and spec is not None and spec.config == run.config)):
            if not self._end(name, run, drain=stays):
                return
            run = None
        if not stays or spec is None or self._context is None or name in self._kept_stopped:
            return
        run = run or self._run_of(name, spec)
        run.pause(paused=spec.target is TargetState.PAUSED)
        if not run.started:
            run.started = True
            context = self._context
            run.supervisor.start(context.spark, context.query, once=context.once, over=context.over)

    def _run_of(self, name: str, spec: ConnectorSpec) -> SupervisedConnector:
        if name not in self._runs:
            made = Supervisor(self._worker, spec.config, self._clock, self._observer)
            self._runs[name] = SupervisedConnector(made, spec.config)
        return self._runs[name]

    def _end(self, name: str, run: SupervisedConnector, *, drain: bool) -> bool:
        """Stops a supervisor, with `drain` after a running fold; returns whether it has ended, and is forgotten."""
        if not (run.ending and drain):  # a fold that may finish may be cancelled later, not the other way round
            run.supervisor.stop(drain=drain, cancel_at=None if drain else self._clock.monotonic() + self._graceful_s)
        run.ending = True
        if not run.supervisor.join(0):
            return False
        self._forget(name, run)
        return True

    def _forget(self, name: str, run: SupervisedConnector) -> None:
        self._locks.ask(run.supervisor.release)
        del self._runs[name]

    @property
    def _graceful_s(self) -> float:
        return self._worker.task_shutdown_graceful_timeout_ms / 1000

    def fail(self, name: str, error: BaseException) -> None:
        """Makes a connector that was not started FAILED, for good."""
        self._runs[name].supervisor.fail(error)

    def is_any_alive(self) -> bool:
        """Returns whether any connector runs, or will be started again by itself or with another config."""
        with self._lock:
            return any(run.supervisor.is_alive() or self._is_replaced(name, run) for name, run in self._runs.items())

    def _is_replaced(self, name: str, run: SupervisedConnector) -> bool:
        """Returns whether the next `reconcile` starts a supervisor in place of `run`."""
        spec = self._specs.find(name)
        stays = spec is not None and spec.target is not TargetState.STOPPED
        return stays and (run.ending or (spec is not None and spec.config != run.config))

    def is_fenced(self) -> bool:
        """Returns whether there is a connector, and each was taken over by another worker."""
        runs = self._all_runs()
        return bool(runs) and all(isinstance(run.supervisor.error, FencedError) for run in runs)

    def alive(self) -> list[str]:
        """Returns the names of the connectors that run, sorted."""
        with self._lock:
            return sorted(name for name, run in self._runs.items() if run.supervisor.is_alive())

    def stop(self, cancel_at: float, until: float) -> Iterator[str]:
        """Stops every connector, and yields the names of those that have not ended by `until`, in monotonic seconds."""
        with self._lock:
            runs = dict(self._runs)
        for run in runs.values():
            run.supervisor.stop(cancel_at=cancel_at)
        for name, run in runs.items():
            if not run.supervisor.join(max(0.0, until - self._clock.monotonic())):
                yield name

    def release(self) -> list[BaseException | None]:
        """Gives all locks back; returns what each connector has ended with.

        A storage that does not answer is waited for no longer than RELEASE_S: then `is_releasing`, and the locks end
        with this process, or a while later on an object store.
        """
        self._specs.end()
        runs = self._all_runs()
        for run in runs:
            self._locks.ask(run.supervisor.release)
        self._locks.ask(self._specs.release)
        self._locks.wait(RELEASE_S)
        return [run.supervisor.error for run in runs]

    @property
    def is_releasing(self) -> bool:
        """Whether locks are still being taken or given back."""
        return not self._locks.wait(0)

    def _all_runs(self) -> list[SupervisedConnector]:
        with self._lock:
            return list(self._runs.values())

    # What connector files say.

    def apply(self, changes: FileChanges) -> None:
        """Takes up what has become of the connector files; FAILED connectors of unchanged ones are started again.

        Waits for the storage, and raises StorageError where that does not say what they are to be: nothing has changed.
        """
        targets = self._specs.stored_targets([file.config.name for file in changes.put])
        for name in changes.removed:
            if self._specs.remove_file(name):
                _log.info("connector file is gone, stopping the connector", connector=name)
        for file in changes.put:
            self._apply(file, targets[file.config.name])
        if changes.put:
            self._specs.warn_of_many()
        with self._lock:
            for name in changes.unchanged:
                self._restart_failed(name)
        self.changed()

    def _apply(self, file: ConnectorFile, stored: TargetState) -> None:
        name, run = file.config.name, self._runs.get(file.config.name)
        try:
            self._specs.check_file(file)
            if run is not None and isinstance(run.supervisor.error, FencedError):
                _log.info("connector ended: left as it is", connector=name, error=str(run.supervisor.error))
            elif self._specs.put_file(file, stored):
                _log.info("new connector file, starting the connector", connector=name, file=str(file.path))
            else:
                _log.info("connector file changed, restarting the connector", connector=name, file=str(file.path))
        except FaultyConfigError as error:
            _log.error("connector file is not valid", file=str(file.path), error=str(error))

    def _restart_failed(self, name: str) -> None:
        """Restarts a connector only if it is FAILED, or waits for an outage to end: its file is unchanged."""
        run = self._runs.get(name)
        if run is None:
            return
        if run.supervisor.has_failed() and not (self._context and self._context.once):
            waits = "connector file unchanged, waits for an outage to end: started again"
            failed = "connector file unchanged, FAILED: started again"
            _log.info(waits if run.supervisor.status.waits else failed, connector=name)
            run.supervisor.restart()
        elif run.supervisor.is_alive():
            _log.info("connector file unchanged: left running", connector=name)
        else:
            _log.info("connector ended: left as it is", connector=name, error=str(run.supervisor.error))

    # What REST asks.

    def names(self) -> list[str]:
        """Returns the names of all connectors, sorted."""
        return sorted(self._specs.all())

    def connectors(self) -> tuple[Connector, ...]:
        """Returns all connectors as they are now, by name."""
        return tuple(self._connector(name, spec) for name, spec in sorted(self._specs.all().items()))

    def connector(self, name: str) -> Connector:
        """Returns a connector as it is now. Raises NoConnectorError."""
        return self._connector(name, self._specs.get(name))

    def _connector(self, name: str, spec: ConnectorSpec) -> Connector:
        run = self._runs.get(name)  # without the lock: a reader waits for no storage
        stopped = spec.target is TargetState.STOPPED
        status = run.supervisor.status if run else Status(ConnectorState.STOPPED) if stopped else Status()
        if status.state is ConnectorState.STOPPED and not stopped:
            status = Status()  # it has ended to be started again, with another config
        return Connector(spec, status, run.supervisor if run else None)

    def active_topics(self, name: str) -> list[str]:
        """Returns the topics that were read, since `reset_topics` where that was called. Raises NoConnectorError."""
        before = self._topics_reset.get(name, {})
        return sorted(topic for topic, end in self._ends(name).items() if end > before.get(topic, 0))

    def reset_topics(self, name: str) -> None:
        """Forgets which topics were read until now; this worker's next start tells of all again."""
        if self._specs.find(name) is not None:
            self._topics_reset[name] = self._ends(name)

    def _ends(self, name: str) -> dict[str, int]:
        """Returns how many offsets of each topic were taken in, as far as this process knows."""
        state = self.connector(name).catalog_state
        found: dict[str, int] = {}
        for log in state.logs if state is not None else ():
            found[log.topic] = found.get(log.topic, 0) + log.end - max(0, log.start)
        return found

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
        as it checks what a user has written, and again where another change comes between.
        `target`: what a new one is to be, RUNNING where it is not given; a changed one stays what it is. Raises what
        `changed` raises; ConflictError where it exists and `only_new`, comes from a file, or would be one more than
        `connectors.max`; FaultyConfigError where it clashes with another; BusyError, StorageError where it cannot be
        stored: then nothing has changed.
        """
        made = self._specs.put(name, changed, target, only_new=only_new)
        _log.info("connector made over REST" if made else "connector's config set over REST", connector=name)
        self.changed()
        return made

    def delete(self, name: str) -> None:
        """Ends a connector and forgets its config; what it keeps stays.

        Raises NoConnectorError, ConflictError, BusyError, StorageError.
        """
        self._specs.delete(name)
        _log.info("connector deleted over REST", connector=name)
        self._topics_reset.pop(name, None)
        self.changed()

    def target(self, name: str, state: TargetState) -> None:
        """Sets what a connector is to be; it is stored when this returns.

        Raises NoConnectorError, ConflictError, BusyError, StorageError.
        """
        self._specs.target(name, state)
        _log.info("connector's target state set over REST", connector=name, state=state.value)
        self.changed()

    def restart(self, name: str) -> None:
        """Restarts a connector that is not STOPPED, also one that another worker has. Raises NoConnectorError."""
        with self._lock:
            self._specs.get(name)
            run = self._runs.get(name)
            if run is not None and run.supervisor.join(0):
                self._forget(name, run)
            elif run is not None:
                run.supervisor.restart()
        self.changed()

    @contextmanager
    def stopped(self, name: str) -> Iterator[ConnectorConfig]:
        """Keeps a connector that is STOPPED from being started, and gives its config; what is asked meanwhile follows.

        Raises NoConnectorError, UsageError where it is not STOPPED, ConflictError where it is kept so already.
        """
        self._join_stopped(name)
        with self._lock:
            spec = self._specs.get(name)
            if spec.target is not TargetState.STOPPED or name in self._runs:
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
        run = self._runs.get(name)
        if run is None or not run.ending or run.supervisor.status.state is not ConnectorState.STOPPED:
            return
        run.supervisor.join(_ENDING_S)
        with self._lock:
            if self._runs.get(name) is run:
                self._end(name, run, drain=False)
        self._locks.wait(_ENDING_S)  # who changes the offsets takes the lock that is given back here
