"""Questions: one is counted at a time, few wait, and none goes on for nobody."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from compactor.errors import KeyfoldError
from connectors.clock import SystemClock
from connectors.config.connector import ConnectorConfig
from connectors.config.files import load_connector, load_worker
from connectors.errors import BusyError
from connectors.ui.what_if.messages import CountingStep, Question
from connectors.ui.what_if.process import EndedError, Watch
from connectors.ui.what_if.runs import (
    DEADLINE_MS,
    KEPT_MS,
    MOST_KEPT,
    MOST_KEPT_BYTES,
    MOST_WAITING,
    UNWATCHED_MS,
    RunStage,
    WhatIfRun,
    WhatIfRuns,
    end_reason,
    settled,
    still_kept,
)
from tests.support.cli import NAME, connector_file, worker_file
from tests.support.kafka import wait_until

RUN = WhatIfRun(id="r", connector="c", changes={}, user="", asked_ms=0, looked_ms=1_000_000, began_ms=1_000_000)
NOW = 1_000_001


@pytest.mark.parametrize(
    ("run", "now_ms", "is_stopped", "said"),
    [
        (RUN, NOW, False, None),
        (RUN, NOW, True, "The worker ends."),
        (replace(RUN, is_cancelled=True), NOW, False, "It was cancelled."),
        (RUN, 1_000_000 + UNWATCHED_MS, False, None),
        (RUN, NOW + UNWATCHED_MS, False, "Nobody has looked at it for 60 s."),
        (replace(RUN, began_ms=NOW - DEADLINE_MS - 1), NOW, False, "It took longer than 10 minutes."),
        (replace(RUN, began_ms=NOW - DEADLINE_MS), NOW, False, None),
        (replace(RUN, began_ms=None), NOW, False, None),
    ],
)
def test_a_question_is_given_up(run: WhatIfRun, now_ms: int, is_stopped: bool, said: str | None) -> None:
    """If it was cancelled, nobody looks any more, it takes too long, or the worker ends."""
    reason = end_reason(run, now_ms, is_stopped=is_stopped)
    assert reason is said if said is None else (reason or "").startswith(said)


def _kept(*runs: WhatIfRun, now_ms: int = NOW) -> list[str]:
    numbered = {str(number): replace(run, id=str(number)) for number, run in enumerate(runs)}
    return [*still_kept(numbered, now_ms)]


def test_answers_are_kept_for_a_while() -> None:
    """As many as fit, the newest; what is under way stays however old."""
    ended = replace(RUN, stage=RunStage.ANSWERED, ended_ms=NOW)
    assert _kept(RUN, ended, now_ms=NOW + KEPT_MS) == ["0", "1"]
    assert _kept(RUN, ended, now_ms=NOW + KEPT_MS + 1) == ["0"]
    assert _kept(*[ended] * (MOST_KEPT + 2)) == [str(number) for number in range(2, MOST_KEPT + 2)]
    large = replace(ended, report=b"x" * (MOST_KEPT_BYTES // 2))
    assert _kept(large, large, large) == ["1", "2"]


class StandInCount:
    """Counts until it is let go, or its watch gives a reason."""

    def __init__(self) -> None:
        self.release = threading.Event()
        self.asked = list[Question]()
        self.side_by_side = 0
        self.most = 0

    def __call__(self, question: Question, report: Callable[[CountingStep], object], watch: Watch) -> bytes:
        self.asked.append(question)
        self.side_by_side += 1
        self.most = max(self.most, self.side_by_side)
        try:
            report(CountingStep("counting records", 1, 3))
            while not self.release.wait(0.01):
                if reason := watch():
                    raise EndedError(reason)
            if question.changes.get("x") == "refused":
                raise KeyfoldError("It is refused.")
            if question.changes.get("x") == "defect":
                raise ValueError("a defect")
            return b"{}"
        finally:
            self.side_by_side -= 1


@pytest.fixture
def config(tmp_path: Path) -> ConnectorConfig:
    return load_connector(connector_file(tmp_path), load_worker(worker_file(tmp_path))).config


@pytest.fixture
def count() -> StandInCount:
    return StandInCount()


@pytest.fixture
def runs(tmp_path: Path, count: StandInCount) -> Iterator[WhatIfRuns]:
    made = WhatIfRuns(load_worker(worker_file(tmp_path)), SystemClock(), count)
    yield made
    made.stop()


def _reaches(runs: WhatIfRuns, run: WhatIfRun, stage: RunStage) -> WhatIfRun:
    def now() -> WhatIfRun:
        looked = runs.looked_at(run.id, NAME)
        assert looked is not None
        return looked

    wait_until(lambda: now().stage is stage, f"the question is {stage.value}")
    return now()


def test_one_is_counted_at_a_time_and_few_wait(runs: WhatIfRuns, count: StandInCount, config: ConnectorConfig) -> None:
    """In the order in which they were asked; one too many is refused, and not kept."""
    first = runs.ask(config, {}, "ann")
    assert _reaches(runs, first, RunStage.COUNTING).step == CountingStep("counting records", 1, 3)
    waiting = [runs.ask(config, {"x": str(number)}, "ann") for number in range(MOST_WAITING)]
    with pytest.raises(BusyError, match="4 questions wait"):
        runs.ask(config, {}, "ann")
    assert [runs.ahead_of(each) for each in waiting] == [1, 2, 3, 4]
    count.release.set()
    for each in (first, *waiting):
        assert _reaches(runs, each, RunStage.ANSWERED).report == b"{}"
    assert [question.changes.get("x") for question in count.asked] == [None, "0", "1", "2", "3"]
    assert count.most == 1


def test_a_cancelled_question_ends_and_the_next_begins(
    runs: WhatIfRuns, count: StandInCount, config: ConnectorConfig
) -> None:
    """Whether it is counted or waits; a waiting one that is cancelled leaves its place at once."""
    first, second, third = (runs.ask(config, {"x": str(number)}, "ann") for number in range(3))
    _reaches(runs, first, RunStage.COUNTING)
    runs.cancel(second.id, NAME)
    left = runs.looked_at(second.id, NAME)
    assert left is not None
    assert (left.stage, left.said, left.began_ms) == (RunStage.CANCELLED, "It was cancelled.", None)
    assert runs.ahead_of(third) == 1
    runs.cancel(first.id, "another")
    runs.cancel(first.id, NAME)
    assert _reaches(runs, first, RunStage.CANCELLED).said == "It was cancelled."
    _reaches(runs, third, RunStage.COUNTING)
    assert [question.changes["x"] for question in count.asked] == ["0", "2"]


def test_a_question_that_waits_for_nobody_leaves_its_place() -> None:
    """It is over at once, not when its turn comes; what is counted is ended by who counts it."""
    waiting = replace(RUN, id="w", stage=RunStage.WAITING, began_ms=None)
    counting = replace(RUN, stage=RunStage.COUNTING)
    later = settled({"w": waiting, "r": counting}, NOW + UNWATCHED_MS)
    assert [each.stage for each in later.values()] == [RunStage.CANCELLED, RunStage.COUNTING]
    assert later["w"].said == "Nobody has looked at it for 60 s."
    assert settled({"w": waiting}, NOW)["w"] == waiting


def test_a_question_takes_the_place_of_the_one_before(runs: WhatIfRuns, config: ConnectorConfig) -> None:
    """A slider that is moved on does not leave a row of questions for nobody."""
    first = runs.ask(config, {}, "ann")
    second = runs.ask(config, {"x": "1"}, "ann", instead_of=first.id)
    _reaches(runs, first, RunStage.CANCELLED)
    _reaches(runs, second, RunStage.COUNTING)


@pytest.mark.parametrize(("kind", "said"), [("refused", "It is refused."), ("defect", "keyfold has a defect here")])
def test_what_fails_is_said(
    runs: WhatIfRuns, count: StandInCount, config: ConnectorConfig, kind: str, said: str
) -> None:
    """An error in its words, a defect without them; and others are counted after it."""
    count.release.set()
    failed = _reaches(runs, runs.ask(config, {"x": kind}, "ann"), RunStage.FAILED)
    assert failed.said.startswith(said)
    assert _reaches(runs, runs.ask(config, {}, "ann"), RunStage.ANSWERED).said == ""


def test_all_are_given_up_when_the_worker_ends(runs: WhatIfRuns, count: StandInCount, config: ConnectorConfig) -> None:
    """What is counted, and what waits."""
    asked = [runs.ask(config, {}, "ann") for _ in range(2)]
    _reaches(runs, asked[0], RunStage.COUNTING)
    runs.stop()
    assert [_reaches(runs, each, RunStage.CANCELLED).said for each in asked] == ["The worker ends."] * 2
    assert len(count.asked) == 1


def test_an_answer_belongs_to_its_connector(runs: WhatIfRuns, config: ConnectorConfig) -> None:
    """The page of another one does not show it, nor that of a new one of its name."""
    run = runs.ask(config, {}, "ann", since_ms=7)
    runs.cancel(run.id, NAME, 8)
    shown = runs.looked_at(run.id, NAME, 7)
    assert shown is not None
    assert not shown.is_cancelled
    assert runs.looked_at(run.id, NAME, 8) is None
    assert runs.looked_at(run.id, "another") is None
    assert runs.looked_at("none", NAME) is None
