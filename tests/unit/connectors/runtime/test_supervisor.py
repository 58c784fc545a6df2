"""When a connector that failed is started again, and what it is for others meanwhile; without Spark.

The clock is the test's: it moves while a connector waits.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import msgspec
import pytest
import structlog

from compactor.catalog import requests
from compactor.catalog.commits import commit_path
from compactor.catalog.owner_lock import is_alive, this_process
from compactor.catalog.owner_starts import Start
from compactor.errors import (
    CatalogError,
    FencedError,
    KeyfoldError,
    OffsetChangeError,
    RejectedRecordError,
    StorageError,
    TruncatedError,
)
from compactor.generation.plan import OffsetChange
from compactor.metrics import Freshness
from compactor.model.record import TopicPartition
from connectors.config.connector import ConnectorConfig
from connectors.config.files import load_connector, load_worker
from connectors.config.stores import connector_storage
from connectors.errors import (
    EXIT_FAILED,
    ConnectorError,
    LoginRefusedError,
    NoConnectionError,
    SparkGoneError,
    TopicSetAsideError,
    exit_code,
)
from connectors.placeholders import resolve
from connectors.progress.observer import Observer
from connectors.runtime import status
from connectors.runtime.connector_task import TaskReport
from connectors.runtime.offset_change import MAY_BE_DONE, ChangedLog
from connectors.runtime.request_answers import NOT_DONE
from connectors.runtime.specs.connector_store import FOLDER
from connectors.runtime.stop import Stop
from connectors.runtime.supervisor import RunContext, Supervisor
from tests.support.cli import NAME, connector_file, keep, row, worker_file
from tests.support.clocks import ManualClock
from tests.support.engine import new_state
from tests.support.requests import leave
from tests.support.spark_standins import StandInSession

CHANGED = ChangedLog(topic="t", partition=0, offset=3, generation=2, tombstones=7)
AWAY = StorageError("The store is away.")


BROKERS = NoConnectionError("The brokers are away.")
Moment = Callable[[float], None]


class Runs:
    """What each run does: it runs for so long, then fails with that; the last of them is stopped."""

    def __init__(
        self,
        clock: ManualClock,
        *plan: tuple[int, BaseException],
        works: bool = False,
        comes_up: bool = True,
        during: Callable[[], object] = lambda: None,
        before: Callable[[], object] = lambda: None,
        counted: TaskReport | None = None,
        takes_over: bool = True,
        fails: Iterable[BaseException] = (),
    ) -> None:
        self.began: list[float] = []
        self.known: list[str | None] = []
        self.starts: list[int] = []
        self.shown: list[dict[str, Any]] = []
        self.others: Iterable[ConnectorConfig] = ()
        self.counted = counted
        catalog = Mock(epoch=1, state=SimpleNamespace(catalog_id="c-1", owner="other:1"))
        self.catalog: Any = catalog if takes_over else None
        self.changer = Mock()
        self.changer.change.side_effect = [*fails, *[(CHANGED,)] * 9]
        self._clock = clock
        self._plan = list(plan)
        self._works, self._comes_up, self._during, self._before = works, comes_up, during, before

    def task(self, *args: Any) -> Any:
        """Stands in for `ConnectorTask`: the last argument but the lock is where it reports to."""
        self._before()
        report: Callable[[TaskReport], None] = args[-2]
        self._made = SimpleNamespace(
            catalog=None,
            worked=False,
            counted=self.counted,
            run=lambda stop, _, **how: self._run(report, stop, **how),
        )
        return self._made

    def _run(
        self,
        report: Callable[[TaskReport], None],
        stop: Stop,
        *,
        once: bool,
        start: Start,
        known: str | None,
        change: Callable[[Any], object] | None,
        others: Callable[[], Iterable[ConnectorConfig]],
    ) -> None:
        self.others = others()
        if change is not None:
            change(())
        self.began.append(self._clock.monotonic_ms() / 1000)
        self.known.append(known)
        self.starts.append(start.number)
        self._made.catalog = self.catalog
        ran_ms, error = self._plan.pop(0) if self._plan else (0, None)
        if self._comes_up:
            report(TaskReport({}, self._made.worked, asked=True))
            self._during()
            self._clock.advance(ran_ms)
            self._made.worked = self._works
            report(TaskReport({}, self._made.worked, asked=True))
        if error and not stop.is_set():
            raise error


class WatchedClock(ManualClock):
    """Calls `look` whenever somebody begins to wait."""

    look: Callable[[], object] = staticmethod(lambda: None)

    def wait_ms(self, ms: int, event: threading.Event) -> bool:
        self.look()
        return super().wait_ms(ms, event)


class Ground:
    """A supervisor over runs that go as planned; `at` looks on at each moment of its waiting, in seconds."""

    def __init__(self, folder: Path) -> None:
        self.clock = WatchedClock(0)
        self.spark: Any = None
        self.asked: list[float] = []
        self.others: Iterable[ConnectorConfig] = ()
        self.request = ""
        self.answering: Callable[[float], bool] = lambda _: True
        worker = load_worker(worker_file(folder))
        config = load_connector(connector_file(folder), worker).config
        self.storage = connector_storage(worker, NAME)
        self.one = Supervisor(
            worker,
            config,
            self.clock,
            Observer(),
            tasks=self._task,
            changers=lambda *_: self.runs.changer,
            brokers_answer=lambda *_: self._ask(),
        )

    def run(
        self,
        *plan: tuple[int, BaseException],
        stopped: bool = False,
        at: Moment | None = None,
        once: bool = False,
        **how: Any,
    ) -> Runs:
        """Until the plan is over, or with `stopped` until its first wait; as with `--once` if `once` is set."""
        self.runs = Runs(self.clock, *plan, **how)

        def look() -> None:
            with suppress(StorageError):
                self.runs.shown.append(msgspec.to_builtins(status.read(self.storage) or {}))
            if at:
                at(self.clock.monotonic_ms() / 1000)
            if stopped:
                self.one.stop()

        self.clock.look = look
        with structlog.testing.capture_logs():  # to print an error with all that it came by takes seconds
            self.one.start(RunContext(self.spark, Mock(), once=once, others=lambda: self.others))
            assert self.one.join(60)
        return self.runs

    def ask(self, kind: str, after: float = 0) -> None:
        """Leaves a request, once, when the clock is that far."""
        if not self.request and self.clock.monotonic_ms() / 1000 >= after:
            self.request = leave(self.storage, kind, self.clock.now_ms()).id

    def answer(self) -> requests.Answer:
        """What was answered to it."""
        found = requests.answered(self.storage, self.request)
        assert found is not None
        return found

    def stop_when_answered(self, _: float) -> None:
        """Stops the supervisor once the request has its answer."""
        if self.request and requests.answered(self.storage, self.request):
            self.one.stop()

    def _task(self, *args: Any) -> Any:
        return self.runs.task(*args)

    def _ask(self) -> bool:
        self.asked.append(self.clock.monotonic_ms() / 1000)
        return self.answering(self.clock.monotonic_ms() / 1000)


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    return Ground(tmp_path)


@pytest.fixture
def start(ground: Ground) -> Callable[..., tuple[Supervisor, Runs]]:
    """Runs a supervisor to its end over runs that go as planned."""
    return lambda *plan, **how: (ground.one, ground.run(*plan, **how))


def _pauses(runs: Runs, ran_ms: int) -> list[int]:
    """Seconds between the end of a run and the start of the next."""
    return [round(after - before - ran_ms / 1000) for before, after in pairwise(runs.began)]


def test_a_connector_that_fails_in_each_batch_waits_longer_and_longer(start: Callable[..., Any]) -> None:
    """That it came up and took something in each time does not begin the back-off anew."""
    one, runs = start(*[(20_000, AWAY)] * 11)
    assert _pauses(runs, 20_000) == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]
    assert one.error is None


def test_a_run_is_told_of_the_other_connectors(ground: Ground) -> None:
    """With which it may make a loop."""
    ground.others = [ground.one.config]
    assert ground.run((0, AWAY)).others == [ground.one.config]


def test_one_that_has_worked_begins_with_a_short_wait_again(start: Callable[..., Any]) -> None:
    """However soon it fails after that: an outage is a new one."""
    _, runs = start(*[(5_000, AWAY)] * 3, works=True)
    assert _pauses(runs, 5_000) == [1, 1, 1]


@pytest.mark.parametrize(
    ("error", "away_from", "back"),
    [
        pytest.param(BROKERS, 0, 150, id="silent from the start on"),
        pytest.param(AWAY, 126, 150, id="it failed for another reason"),
    ],
)
def test_brokers_that_are_back_end_the_wait(ground: Ground, error: Exception, away_from: int, back: int) -> None:
    """They are asked every few seconds, and taken up within five, whatever the back-off has come to."""
    ground.answering = lambda now: not away_from <= now < back
    runs = ground.run(*[(0, AWAY)] * 7, (0, error))
    assert back <= runs.began[-1] <= back + 5
    assert max(after - before for before, after in pairwise(ground.asked) if after < back) > 1


def test_brokers_that_are_back_before_the_first_question_end_the_wait(ground: Ground) -> None:
    """Their silence was what the connector failed for."""
    runs = ground.run(*[(0, BROKERS)] * 7)
    assert max(_pauses(runs, 0)) <= 2


def test_brokers_that_answer_all_the_time_shorten_no_wait(ground: Ground) -> None:
    """What it failed for is something else; they are asked once."""
    runs = ground.run(*[(0, AWAY)] * 7)
    assert _pauses(runs, 0) == [1, 2, 4, 8, 16, 32, 64]
    assert len(ground.asked) <= 7


def test_a_store_that_is_back_ends_the_wait(ground: Ground) -> None:
    """The status goes there anyway."""
    in_its_place = Path(ground.storage.location, status.NAME)
    in_its_place.mkdir(parents=True)  # so that no status can be written

    def comes_back(now: float) -> None:
        if now >= 75 and in_its_place.is_dir():
            in_its_place.rmdir()

    runs = ground.run(*[(0, AWAY)] * 7, at=comes_back)
    assert 75 <= runs.began[-1] <= 80


def test_describe_sees_a_connector_that_waits(start: Callable[..., Any]) -> None:
    """Error, failures and the time of the next start; the file is fresh however long the wait is."""
    _, runs = start(*[(0, AWAY)] * 6)
    last = runs.shown[-1]
    assert (last["state"], last["failures"], last["error"]) == ("RESTARTING", 6, str(AWAY))
    assert {shown["waiting_since_ms"] for shown in runs.shown} == {0}
    assert 0 <= last["next_restart_ms"] - last["updated_ms"] <= 32_000
    times = [shown["updated_ms"] for shown in runs.shown]
    assert max(after - before for before, after in pairwise(times)) <= status.WRITE_EVERY_MS


@pytest.mark.parametrize(
    ("error", "shown", "since_ms"),
    [
        (AWAY, "RESTARTING", 5_000),
        (BROKERS, "RESTARTING", 5_000),
        (LoginRefusedError("The brokers do not let it in."), "FAILED", None),
        (ValueError("A Spark task failed."), "FAILED", None),
    ],
)
def test_an_outage_makes_no_connector_failed(
    ground: Ground, error: Exception, shown: str, since_ms: int | None
) -> None:
    """Alerts on FAILED are for what somebody has to mend; what waits for an outage is RESTARTING, since it began."""
    ground.answering = lambda _: False
    runs = ground.run((5_000, error), (0, error), (0, error), takes_over=False)
    assert {one["state"] for one in runs.shown} == {shown}
    assert {one["waiting_since_ms"] for one in runs.shown} == {since_ms}


def test_an_outage_is_over_once_the_connector_has_worked(start: Callable[..., Any]) -> None:
    """The next one begins anew."""
    _, runs = start(*[(5_000, AWAY)] * 2, works=True)
    assert [shown["waiting_since_ms"] for shown in runs.shown] == [5_000, 11_000]


def test_a_command_is_told_that_the_connector_waits(ground: Ground) -> None:
    """It ends with 4, as if the brokers had not answered itself; it is not retried, and the answer says so."""
    ground.answering = lambda _: False
    ground.run(*[(0, BROKERS)] * 3, at=lambda _: ground.ask("snapshot"))
    answer = ground.answer()
    assert (answer.ok, answer.unreachable) == (False, True)
    assert "waits for an outage to end" in answer.message
    assert answer.action == "Nothing was done of what was asked: run the command again then."


def test_a_stop_ends_the_wait(start: Callable[..., Any]) -> None:
    """It was to be started again, so that is a clean end."""
    one, runs = start((0, AWAY), stopped=True)
    assert (one.error, len(runs.began)) == (None, 1)


def test_a_fenced_connector_is_not_started_again(ground: Ground) -> None:
    """It has another owner, and so has its lock."""
    error = FencedError("Newer.")
    runs = ground.run((0, error))
    assert (ground.one.error, len(runs.began), is_alive(ground.storage)) == (error, 1, False)


def test_what_an_operator_must_see_to_waits_for_him(ground: Ground) -> None:
    """It is in this worker's hands, and says so, however long; the others of the worker do not wait for it."""
    error = CatalogError("Damaged.")
    seen: list[tuple[bool, bool]] = []

    def look(now: float) -> None:
        seen.append((is_alive(ground.storage), ground.one.is_alive()))
        if now > 300:
            ground.one.stop()

    runs = ground.run((0, error), at=look)
    assert (ground.one.error, len(runs.began), set(seen)) == (error, 1, {(True, False)})
    assert runs.shown[-1]["updated_ms"] > 290_000
    assert not is_alive(ground.storage)


def test_a_connector_that_waits_is_alive(ground: Ground) -> None:
    """A command that asked for its lock would otherwise take it over beside its own worker."""
    seen: list[bool] = []
    ground.run(*[(0, AWAY)] * 3, at=lambda _: seen.append(is_alive(ground.storage)))
    assert set(seen) == {True}
    assert not is_alive(ground.storage)


def test_what_is_asked_of_a_connector_that_waits_is_answered(ground: Ground) -> None:
    """With its error and the time of its restart; a command that heard nothing would wait for all of it."""
    ground.run(*[(0, AWAY)] * 6, at=lambda _: ground.ask("clean", after=20))
    answer = ground.answer()
    assert (answer.ok, str(AWAY) in answer.message) == (False, True)
    assert "waits for an outage to end, and is started again at 1970-01-01T00:00:31Z" in answer.message


@pytest.mark.parametrize("error", [AWAY, CatalogError("Damaged.")])
def test_a_failed_connector_is_restarted_on_request(ground: Ground, error: Exception) -> None:
    """At once, also where only an operator could say so; the answer comes when it runs."""
    runs = ground.run(*[(0, AWAY)] * 8, (0, error), at=lambda _: ground.ask("restart", after=300))
    assert runs.began[-1] <= 302
    answer = ground.answer()
    assert (answer.ok, answer.result) == (True, {"state": "RUNNING"})


def test_a_restart_that_fails_says_so(ground: Ground) -> None:
    """The answer holds the new error."""
    again = CatalogError("Still damaged.")

    def look(now: float) -> None:
        ground.stop_when_answered(now)
        ground.ask("restart")

    ground.run((0, CatalogError("Damaged.")), (0, again), at=look, comes_up=False)
    answer = ground.answer()
    assert (answer.ok, str(again) in answer.message) == (False, True)


def test_a_request_whose_run_fails_may_have_been_done(ground: Ground) -> None:
    """A resync may have begun its generation before the brokers fell silent: nobody is told that nothing was done."""

    def look(now: float) -> None:
        ground.stop_when_answered(now)
        ground.ask("restart")

    ground.run((0, CatalogError("Damaged.")), (0, BROKERS), at=look, comes_up=False)
    assert ground.answer().action.startswith("What was asked may have been done: see keyfold describe")


def test_a_running_connector_is_restarted_on_request(ground: Ground) -> None:
    """Its run ends as with any stop, and another begins at once; that is no failure."""
    seen: list[bool] = []

    def ask() -> None:
        # The catalog is asked for a newer owner between the two runs.
        ground.runs.catalog.refresh.side_effect = lambda: seen.append(ground.one.is_alive())
        ground.ask("restart")

    runs = ground.run((5_000, AWAY), during=ask)
    assert seen == [True]  # a worker whose connectors have all ended ends
    assert _pauses(runs, 5_000) == [0]
    assert (ground.one.error, ground.one.status.failures) == (None, 0)
    assert ground.answer().ok


def test_a_connector_is_restarting_from_the_moment_that_it_is_asked_for(ground: Ground) -> None:
    """Until its next run says what it is: a client that waits for RUNNING never sees the run that ends."""
    seen: list[str] = []

    def ask() -> None:
        if not seen:
            seen.append(ground.one.status.state)
            ground.one.restart()
            seen.append(ground.one.status.state)

    ground.run((5_000, AWAY), during=ask, before=lambda: seen.extend([ground.one.status.state] if seen else []))
    assert seen == ["RUNNING", "RESTARTING", "RESTARTING"]


def test_a_run_is_the_restart_that_was_asked_for_before_it(ground: Ground) -> None:
    """A worker that has just been started does not start its connectors twice."""
    ground.ask("restart")
    runs = ground.run((5_000, AWAY))
    assert _pauses(runs, 5_000) == [1]
    assert ground.answer().ok


@pytest.mark.parametrize("error", [None, CatalogError("Damaged.")], ids=["running", "failed"])
def test_a_resync_is_what_the_next_run_begins_with(ground: Ground, error: Exception | None) -> None:
    """A run ends for it, or a wait; the answer has what became of the logs, and what was asked for is asked for."""
    plan = (5_000, AWAY) if error is None else (0, error)
    during = (lambda: ground.ask("resync")) if error is None else (lambda: None)
    runs = ground.run(plan, at=None if error is None else lambda _: ground.ask("resync"), during=during)
    assert len(runs.began) == 2
    answer = ground.answer()
    assert (answer.ok, answer.result) == (True, {"logs": [msgspec.to_builtins(CHANGED)]})
    (choose, _), _ = runs.changer.change.call_args
    state = new_state({0: 0, 1: 0})
    assert choose(state) == OffsetChange(offsets={log.tp: None for log in state.logs}, anew=True)


def test_a_resync_that_cannot_be_is_refused_and_the_connector_runs(ground: Ground) -> None:
    """Nothing was changed: the error is the command's alone."""
    refusal = OffsetChangeError("Keys would be given up.", "Ask again.")

    def ask() -> None:
        ground.ask("resync")
        ground.runs.changer.change.side_effect = refusal

    ground.run((5_000, AWAY), during=ask)
    answer = ground.answer()
    assert (answer.ok, answer.message, answer.action) == (False, refusal.message, refusal.action)
    assert (ground.one.error, ground.one.status.failures) == (None, 0)


@pytest.mark.parametrize(
    ("changed", "is_in_doubt", "ok", "action"),
    [
        pytest.param((CHANGED,), False, True, "", id="after the change was committed"),
        pytest.param(None, False, False, NOT_DONE, id="before"),
        pytest.param(None, True, False, MAY_BE_DONE, id="in its commit"),
    ],
)
def test_a_resync_that_fails_says_whether_it_was_done(
    ground: Ground, changed: tuple[ChangedLog, ...] | None, is_in_doubt: bool, ok: bool, action: str
) -> None:
    """The commit of the change decides: what comes after it the next run does by itself."""

    def ask() -> None:
        ground.ask("resync")
        ground.runs.changer.changed, ground.runs.changer.is_in_doubt = changed, is_in_doubt
        ground.runs.changer.change.side_effect = BROKERS

    ground.run((5_000, AWAY), at=ground.stop_when_answered, during=ask)
    answer = ground.answer()
    assert (answer.ok, answer.action, bool(answer.result)) == (ok, action, ok)


@pytest.mark.parametrize("stopped", [True, False])
@pytest.mark.parametrize("error", [FencedError("Taken over."), CatalogError("Damaged."), BROKERS])
def test_nobody_is_told_that_a_change_in_doubt_was_not_made(ground: Ground, error: Exception, stopped: bool) -> None:
    """Whatever ended the run, also if it was stopped: what an operator mends is said after that."""

    def change(*_: object) -> None:
        if stopped:
            ground.one.stop()
        raise error

    def ask() -> None:
        ground.ask("resync")
        ground.runs.changer.changed, ground.runs.changer.is_in_doubt = None, True
        ground.runs.changer.change.side_effect = change

    ground.run((5_000, AWAY), at=ground.stop_when_answered, during=ask)
    assert ground.answer().action.startswith(MAY_BE_DONE)


def test_a_connector_that_was_taken_over_while_it_waited_ends(ground: Ground) -> None:
    """It is told so at the next look, and takes nothing back from the new owner."""
    error = FencedError("other:1 took it over.")

    def look(now: float) -> None:
        if now > 10:
            ground.runs.catalog.refresh.side_effect = error

    runs = ground.run(*[(0, AWAY)] * 6, at=look)
    assert (ground.one.error, runs.began[-1] < 15) == (error, True)
    assert not is_alive(ground.storage)


def test_a_take_over_of_its_own_whose_answer_was_lost_is_no_other_owner(ground: Ground) -> None:
    """The epoch is newer than the one that it knows, and its own all the same."""

    def look(now: float) -> None:
        ground.runs.catalog.state.owner = this_process().text
        ground.runs.catalog.refresh.side_effect = FencedError("Newer.")

    runs = ground.run(*[(0, AWAY)] * 3, at=look)
    assert (ground.one.error, len(runs.began)) == (None, 4)


def test_the_catalog_of_the_last_run_is_expected_by_the_next(start: Callable[..., Any]) -> None:
    """So an empty folder where a disk was unmounted is not taken for a connector that begins."""
    _, runs = start((0, AWAY))
    assert runs.known == [None, "c-1"]


@pytest.mark.parametrize("once", [True, False])
@pytest.mark.parametrize("again", [False, True])
def test_a_topic_that_is_set_aside_ends_nothing_for_the_others(ground: Ground, *, once: bool, again: bool) -> None:
    """The next run begins at once, also with `--once`; a second error about the topic is a failure as any other."""
    gone = TopicSetAsideError("t was recreated.")
    gone.topic = "t"
    runs = ground.run(*[(0, gone)] * (2 if again else 1), once=once)
    assert runs.began[:2] == [0, 0]
    assert (len(runs.began), ground.one.error) == ((2, gone) if again and once else (3 if again else 2, None))


@pytest.mark.parametrize("once", [True, False])
def test_a_truncate_is_applied_as_the_next_run_begins(ground: Ground, *, once: bool) -> None:
    """At once, also with `--once`; a run after that changes nothing, unless it has met another truncate."""
    runs = ground.run((0, TruncatedError("t-0 at 7.", "", {TopicPartition("t", 0): 7})), once=once)
    ((choose, _),) = [call.args for call in runs.changer.change.call_args_list]
    assert choose(None).offsets == {TopicPartition("t", 0): 8}
    assert (runs.began, ground.one.error) == ([0, 0], None)


def test_a_truncate_that_could_not_be_applied_is_met_again(ground: Ground) -> None:
    """The run that fails has not begun to read; the next one waits for the back-off, reads it, and so on."""
    met = TruncatedError("t-0 at 7.", "", {TopicPartition("t", 0): 7})
    runs = ground.run((0, met), (0, met), fails=[AWAY])
    assert [len(runs.began), runs.changer.change.call_count, ground.one.error] == [3, 2, None]


def test_restarts_by_itself_keep_the_place_among_all_starts(ground: Ground) -> None:
    """Only a start that somebody asked for comes later than a process that took the connector over meanwhile."""
    runs = ground.run(*[(0, AWAY)] * 2)
    assert runs.starts == [1, 1, 1]


def test_a_place_that_could_not_be_had_is_asked_for_again(ground: Ground, tmp_path: Path) -> None:
    """The storage may only have been away: a run without a place goes on, and the next one asks for it."""
    in_its_place = tmp_path / "store" / FOLDER
    in_its_place.parent.mkdir(parents=True)
    in_its_place.write_text("no folder")

    def comes_back(_: float) -> None:
        if in_its_place.is_file():
            in_its_place.unlink()

    runs = ground.run(*[(0, AWAY)] * 2, at=comes_back)
    assert runs.starts == [0, 1, 1]


def test_without_spark_nothing_is_started_again(ground: Ground) -> None:
    """What a dead JVM breaks fails with what happened, and for good: exit code 1."""
    ground.spark = StandInSession(code=-9)
    runs = ground.run((0, ConnectionRefusedError("py4j")))
    error = ground.one.error
    assert isinstance(error, SparkGoneError)
    assert "signal 9" in str(error)
    assert (exit_code(error), len(runs.began)) == (EXIT_FAILED, 1)


def test_what_a_run_counted_last_outlives_its_failure(start: Callable[..., Any]) -> None:
    """Its last report may be a second old: transactions that were aborted as it failed are in no metric otherwise."""
    counted = TaskReport({"transactions_aborted": 1}, worked=False, freshness=Freshness().with_sent(1.0, 3))
    one, runs = start((0, AWAY), counted=counted)
    assert (runs.shown[0]["state"], runs.shown[0]["counters"]) == ("RESTARTING", counted.counters)
    assert (dict(one.counters), one.freshness.seconds) == (counted.counters, 3.0)


@pytest.mark.parametrize("version", [0, 2])
def test_what_the_catalog_holds_is_known_of_one_that_fails_before_it_is_taken_over(
    ground: Ground, tmp_path: Path, version: int
) -> None:
    """As storage has it, so that nothing vanishes from metrics; nothing where there is no catalog yet."""
    if version:
        keep(tmp_path, [row(0, b"k", b"v")])
    ground.run((0, ConnectorError("down", "")), stopped=True, takes_over=False)
    found = ground.one.catalog_state
    assert ([log.end for log in found.logs] if found else None) == ([1] if version else None)


def test_a_catalog_that_cannot_be_read_is_not_known(ground: Ground) -> None:
    """The run has said so already."""
    ground.storage.write(commit_path(1), b"{")
    ground.run((0, ConnectorError("down", "")), stopped=True, takes_over=False)
    assert ground.one.catalog_state is None


@pytest.mark.parametrize(
    ("over_rest", "error", "hidden"),
    [
        (False, KeyfoldError("own-secret workers-secret"), "${env:OWN} ${env:WORKERS}"),
        (True, KeyfoldError("own-secret workers-secret"), "${env:OWN} workers-secret"),
        (False, RejectedRecordError("own-secret workers-secret"), "own-secret workers-secret"),
    ],
)
def test_the_status_tells_nobody_that_a_guess_is_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, over_rest: bool, error: KeyfoldError, hidden: str
) -> None:
    """Names of topics and texts of records stand in errors: of one that was sent over REST, or of any producer."""
    monkeypatch.setenv("OWN", "own-secret")
    monkeypatch.setenv("WORKERS", "workers-secret")
    resolve("${env:OWN} ${env:WORKERS}")
    worker = load_worker(worker_file(tmp_path, **{"consumer.client.rack": "${env:WORKERS}"}))
    given = {
        "name": "c",
        "connector.class": "CompactedTopic",
        "topics": "t",
        "consumer.override.client.rack": "${env:OWN}",
    }
    config = ConnectorConfig.model_validate(given, context=worker.limits(over_rest=over_rest))
    one = Supervisor(worker, config, ManualClock(0), Observer())
    one.fail(error)
    assert one.status.error == hidden


class PanicException(BaseException):
    """What a library made with pyo3 raises when its Rust panics."""


def test_a_panic_of_a_library_ends_the_connector_only(ground: Ground) -> None:
    """It is no Exception, and the connector is FAILED with it like with any other error."""
    runs = ground.run((0, PanicException("called `Option::unwrap()`")), stopped=True)
    assert (runs.shown[-1]["state"], runs.shown[-1]["error"]) == ("FAILED", "called `Option::unwrap()`")
