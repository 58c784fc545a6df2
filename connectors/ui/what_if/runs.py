"""Keeps what was asked of `analyze` on the page: one question is counted at a time, and answers stay a while."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Mapping
from enum import Enum
from functools import partial
from typing import Final

import structlog
from msgspec import Struct
from msgspec.structs import replace

from compactor.errors import KeyfoldError
from connectors.clock import Clock
from connectors.config.connector import ConnectorConfig
from connectors.config.secrets import logged_text
from connectors.config.worker import WorkerConfig
from connectors.errors import DEFECT, BusyError
from connectors.threads import CallQueue
from connectors.ui.what_if.messages import CountingStep, Question
from connectors.ui.what_if.process import EndedError, Watch, count_in_process

MOST_WAITING: Final = 4
"""How many questions wait: with the one that is counted, each for the deadline, 50 minutes at most."""
DEADLINE_MS: Final = 600_000
"""How long a question is counted at most. Files that a fold replaces meanwhile stay for an hour (VACUUM_GRACE_MS)."""
UNWATCHED_MS: Final = 60_000
"""After how long without a look a question is given up. A page with JavaScript looks every second."""
MOST_KEPT: Final = 20
"""How many answers are kept, of 2 KB a partition and 16 MiB at most."""
MOST_KEPT_BYTES: Final = 32 << 20
KEPT_MS: Final = 900_000
"""How long an answer is kept: what it is about has changed by then."""
_END_S: Final = 2.0
"""How long (s) the end of a worker waits for the process to be ended."""

_log = structlog.get_logger()


class RunStage(Enum):
    """What has become of a question; the value is for reading."""

    WAITING = "waiting"
    COUNTING = "counting"
    ANSWERED = "answered"
    CANCELLED = "cancelled"
    FAILED = "failed"

    @property
    def is_over(self) -> bool:
        """Whether nothing more comes of it."""
        return self not in (RunStage.WAITING, RunStage.COUNTING)


class WhatIfRun(Struct, frozen=True, kw_only=True):
    """A question of `user` at `asked_ms`, and what has become of it; `looked_ms` and `began_ms` are monotonic.

    It is about the connector that has its name since `since_ms`. `report` is the answer as JSON; `said` is why there
    is none.
    """

    id: str
    connector: str
    since_ms: int = 0
    changes: Mapping[str, str]
    user: str
    asked_ms: int
    looked_ms: int
    began_ms: int | None = None
    ended_ms: int | None = None
    stage: RunStage = RunStage.WAITING
    step: CountingStep = CountingStep()
    is_cancelled: bool = False
    report: bytes = b""
    said: str = ""


def end_reason(run: WhatIfRun, now_ms: int, *, is_stopped: bool = False) -> str | None:
    """Returns why a question is given up at the monotonic `now_ms`; None if it goes on. Pure."""
    if is_stopped:
        return "The worker ends."
    if run.is_cancelled:
        return "It was cancelled."
    if now_ms - run.looked_ms > UNWATCHED_MS:
        return f"Nobody has looked at it for {UNWATCHED_MS // 1_000} s."
    if run.began_ms is not None and now_ms - run.began_ms > DEADLINE_MS:
        return (
            f"It took longer than {DEADLINE_MS // 60_000} minutes. `keyfold analyze` counts on Spark, without an end."
        )
    return None


def settled(runs: Mapping[str, WhatIfRun], now_ms: int) -> dict[str, WhatIfRun]:
    """Returns `runs` with those over that wait, and are given up at the monotonic `now_ms`. Pure."""
    return {run.id: _settled(run, now_ms) for run in runs.values()}


def _settled(run: WhatIfRun, now_ms: int) -> WhatIfRun:
    reason = end_reason(run, now_ms) if run.stage is RunStage.WAITING else None
    return run if reason is None else replace(run, stage=RunStage.CANCELLED, said=reason, ended_ms=now_ms)


def still_kept(runs: Mapping[str, WhatIfRun], now_ms: int) -> dict[str, WhatIfRun]:
    """Returns the questions that are under way, and the newest answers within the limits. Pure.

    `runs` are by id, the oldest first; `now_ms` is monotonic.
    """
    kept: list[WhatIfRun] = []
    ended, size = 0, 0
    for run in reversed([*runs.values()]):
        if run.stage.is_over:
            ended, size = ended + 1, size + len(run.report)
            is_old = run.ended_ms is not None and now_ms - run.ended_ms > KEPT_MS
            if is_old or ended > MOST_KEPT or size > MOST_KEPT_BYTES:
                continue
        kept.append(run)
    return {run.id: run for run in reversed(kept)}


Count = Callable[[Question, Callable[[CountingStep], object], Watch], bytes]


class WhatIfRuns:
    """Has questions counted by `count`, one after the other; threads share it."""

    def __init__(self, worker: WorkerConfig, clock: Clock, count: Count = count_in_process) -> None:
        self._worker = worker
        self._clock = clock
        self._count = count
        # By id, the oldest first; changed under the lock.
        self._runs: dict[str, WhatIfRun] = {}
        self._lock = threading.Lock()
        self._queue = CallQueue("page-what-if")
        self._stopped = threading.Event()

    def ask(
        self,
        connector: ConnectorConfig,
        changes: Mapping[str, str],
        user: str,
        instead_of: str = "",
        since_ms: int = 0,
    ) -> WhatIfRun:
        """Asks about the connector that has its name since `since_ms`, and returns what is kept of the question.

        The question with the id `instead_of` is cancelled. Raises BusyError if too many wait, NoThreadError.
        """
        run = WhatIfRun(
            id=secrets.token_urlsafe(9),
            connector=connector.name,
            since_ms=since_ms,
            changes=dict(changes),
            user=user,
            asked_ms=self._clock.now_ms(),
            looked_ms=self._clock.monotonic_ms(),
        )
        with self._lock:
            self._cancel(instead_of, connector.name, since_ms)
            self._settle()
            waiting = sum(each.stage is RunStage.WAITING for each in self._runs.values())
            if waiting >= MOST_WAITING:
                raise BusyError(f"{waiting} questions wait to be counted already.", "Ask again in a minute.")
            self._runs[run.id] = run
        try:
            self._queue.ask(partial(self._carry_out, run.id, Question(self._worker, connector, changes)))
        except BaseException:
            with self._lock:
                self._runs.pop(run.id, None)
            raise
        return run

    def looked_at(self, run_id: str, connector: str, since_ms: int = 0) -> WhatIfRun | None:
        """Returns a question about the connector that has the name since `since_ms`; None if it is kept no more.

        Notes that somebody looks at it.
        """
        with self._lock:
            self._settle()
            run = self._named(run_id, connector, since_ms)
            if run is None:
                return None
            self._runs[run_id] = looked = replace(run, looked_ms=self._clock.monotonic_ms())
            return looked

    def ahead_of(self, run: WhatIfRun) -> int:
        """Returns how many questions are counted before `run`."""
        with self._lock:
            earlier = [each for each in self._runs.values() if not each.stage.is_over]
        return [*(each.id for each in earlier), run.id].index(run.id)

    def cancel(self, run_id: str, connector: str, since_ms: int = 0) -> None:
        """Has a question about the connector that has the name since `since_ms` given up, if it is under way."""
        with self._lock:
            self._cancel(run_id, connector, since_ms)
            self._settle()

    def stop(self) -> None:
        """Gives up everything, as the worker ends."""
        self._stopped.set()
        self._queue.wait(_END_S)

    def _settle(self) -> None:
        now_ms = self._clock.monotonic_ms()
        self._runs = still_kept(settled(self._runs, now_ms), now_ms)

    def _named(self, run_id: str, connector: str, since_ms: int) -> WhatIfRun | None:
        run = self._runs.get(run_id)
        return run if run is not None and (run.connector, run.since_ms) == (connector, since_ms) else None

    def _cancel(self, run_id: str, connector: str, since_ms: int) -> None:
        run = self._named(run_id, connector, since_ms)
        if run is not None:
            self._runs[run_id] = replace(run, is_cancelled=True)

    def _reason(self, run_id: str) -> str | None:
        with self._lock:
            run = self._runs[run_id]
        return end_reason(run, self._clock.monotonic_ms(), is_stopped=self._stopped.is_set())

    def _change(self, run_id: str, **changes: object) -> None:
        with self._lock:
            self._runs[run_id] = replace(self._runs[run_id], **changes)

    def _carry_out(self, run_id: str, question: Question) -> None:
        with self._lock:
            run = self._runs.get(run_id)
        if run is None or run.stage.is_over:
            return
        stage, said, report = RunStage.FAILED, DEFECT, b""
        try:
            if reason := self._reason(run_id):
                raise EndedError(reason)
            self._change(run_id, stage=RunStage.COUNTING, began_ms=self._clock.monotonic_ms())
            report = self._count(question, lambda step: self._change(run_id, step=step), partial(self._reason, run_id))
            stage, said = RunStage.ANSWERED, ""
        except EndedError as error:
            stage, said = RunStage.CANCELLED, str(error)
        except KeyfoldError as error:
            said = logged_text(str(error))
        except Exception as error:  # noqa: BLE001  # it is said on the page
            _log.error("what-if failed", connector=question.connector.name, exc_info=error)
        finally:
            self._change(run_id, stage=stage, said=said, report=report, ended_ms=self._clock.monotonic_ms())
