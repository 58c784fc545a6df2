"""When a connector that FAILED is started again: back-off, and the end of an outage."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import Mock

import pytest

from compactor.errors import CatalogError, FencedError, StorageError
from connectors.config.files import load_connector, load_worker
from connectors.errors import NoConnectionError
from connectors.runtime import restart_policy
from connectors.runtime.restart_policy import Outage, RestartBackoff, brokers_answer, is_retriable
from tests.support.cli import connector_file, worker_file

BACKOFF = RestartBackoff(initial_ms=1_000, max_ms=300_000)


def test_the_wait_doubles_up_to_its_limit() -> None:
    """restart.backoff.initial.ms, then twice as long each time, restart.backoff.max.ms at most, however often."""
    assert [BACKOFF.delay_ms(times) for times in (1, 2, 3, 9, 10, 1_000)] == [
        *(1_000, 2_000, 4_000),
        *(256_000, 300_000, 300_000),
    ]


@pytest.mark.parametrize(
    ("error", "again"),
    [(StorageError("x"), True), (CatalogError("x"), False), (FencedError("x"), False), (ValueError("x"), True)],
)
def test_what_waiting_cannot_help_is_not_tried_again(error: Exception, *, again: bool) -> None:
    """Retriable errors and unknown ones are; a fenced connector never is."""
    assert is_retriable(error) is again


@pytest.mark.parametrize(
    ("silent", "answers", "over"),
    [
        pytest.param(False, [False, False, True], [False, False, True], id="away and back"),
        pytest.param(True, [True], [True], id="back before the first question"),
        pytest.param(False, [True, False, True], [False, False, False], id="never away: asked once"),
        pytest.param(True, [False, True, False, True], [False, True, False, False], id="told once"),
    ],
)
def test_an_outage_is_over_once_who_was_silent_answers(silent: bool, answers: list[bool], over: list[bool]) -> None:
    """Whoever answers all the time was not why the connector failed: to start at once would change nothing."""
    asked = Mock(side_effect=answers)
    one = Outage(asked, silent=silent)
    assert [one.is_over() for _ in answers] == over


@pytest.mark.parametrize(
    ("found", "answer"), [(None, True), (NoConnectionError("Refused."), False), (ValueError("A defect."), False)]
)
def test_brokers_are_asked_what_the_next_life_asks_first(tmp_path: Path, found: Exception | None, answer: bool) -> None:
    """Whether they let every client in, in short; whatever else goes wrong ends no connector."""
    reach = Mock(side_effect=found)
    worker = load_worker(worker_file(tmp_path))
    assert brokers_answer(worker, load_connector(connector_file(tmp_path), worker).config, reach) is answer
    assert reach.call_args.args[-1] == restart_policy.ASK_S


def test_nobody_answers_where_nobody_listens(tmp_path: Path) -> None:
    """As librdkafka sees it."""
    worker = load_worker(worker_file(tmp_path))
    assert not brokers_answer(worker, load_connector(connector_file(tmp_path), worker).config)
