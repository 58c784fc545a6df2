"""What a connector lost is noticed when it is back."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import Mock

import pytest

from connectors.config.load import load_connector, load_worker
from connectors.errors import NoConnectionError
from connectors.runtime import outage
from connectors.runtime.outage import Outage, brokers_answer
from tests.support.cli import connector_file, worker_file


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
def test_brokers_are_asked_what_the_next_life_asks_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, found: Exception | None, answer: bool
) -> None:
    """Whether they let every client in, in short; whatever else goes wrong ends no connector."""
    reach = Mock(side_effect=found)
    monkeypatch.setattr(outage, "probe_all", reach)
    worker = load_worker(worker_file(tmp_path))
    assert brokers_answer(worker, load_connector(connector_file(tmp_path), worker).config) is answer
    assert reach.call_args.args[-1] == outage.ASK_S


def test_nobody_answers_where_nobody_listens(tmp_path: Path) -> None:
    """As librdkafka sees it."""
    worker = load_worker(worker_file(tmp_path))
    assert not brokers_answer(worker, load_connector(connector_file(tmp_path), worker).config)
