"""A running worker answers Kafka Connect's requests, good and bad ones, as Kafka Connect does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from connectors.dev.embedded_kafka import EmbeddedKafka
from tests.support.connect.asking import Answer, Sink, ask_all
from tests.support.connect.comparing import differences
from tests.support.connect.keep import kept, make_topics
from tests.support.connect.real_worker import SINK
from tests.support.rest_process import RestProcess

pytestmark = pytest.mark.timeout(300)

OURS: Final = Sink("keyfold.CompactedTopic", "CompactedTopic")

NAMES: Final = "a name is a folder's, a group's and a transactional id's: letters, digits, '.', '_' and '-'"
TASKS: Final = "the tasks are known at once, as Kafka Connect's standalone worker answers"
WORKERS: Final = "what Kafka Connect's workers say to one another there is not"
DIFFERENT: Final[dict[str, tuple[int, str]]] = {
    "PUT /connectors/a%20b/config": (400, NAMES),
    "DELETE /connectors/a%20b": (404, NAMES),
    'POST /connectors application/json {"name": " a "': (201, TASKS),
    "PUT /connectors/made.by-put/config": (201, TASKS),
    "POST /connectors/a/tasks application/json": (405, WORKERS),
    'POST /connectors application/json {"name": "b"': (201, TASKS),
    "GET /connectors/b/status": (200, TASKS),
    "PUT /connector-plugins/Nothing/config/validate": (404, "the plugin in the path is not there"),
    "GET / Accept: text/html": (200, "a browser is shown the worker's page"),
}
"""Requests that are answered differently on purpose, by how they begin: our status, and why."""


@pytest.fixture(scope="module")
def own_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedKafka]:
    """A broker whose topics have the names that the requests have."""
    with EmbeddedKafka(tmp_path_factory.mktemp("kafka")) as running:
        make_topics(running.bootstrap)
        yield running


def test_answers_are_those_of_kafka_connect(own_broker: EmbeddedKafka, tmp_path: Path) -> None:
    """Status, media type, Location and form of the body; what differs on purpose is listed, and does differ."""
    with RestProcess(tmp_path, own_broker.bootstrap) as worker:
        ours = list(ask_all(worker.url, OURS))
    theirs = kept()
    assert [one.request for one in theirs] == [one.request for one in ours]
    wrong = [
        f"{left.request}: {what}" for left, right in zip(theirs, ours, strict=True) for what in _wrong(left, right)
    ]
    assert not wrong, "\n".join(wrong)


def _wrong(theirs: Answer, ours: Answer) -> Iterator[str]:
    found = list(differences(theirs, ours, (SINK, OURS)))
    known = next((status for begin, (status, _) in DIFFERENT.items() if theirs.request.startswith(begin)), None)
    if known is None:
        yield from found
        return
    if ours.status != known:
        yield f"status {ours.status} instead of our own {known}"
    if not found:
        yield "is answered as Kafka Connect does: take it from DIFFERENT"
    if known >= 400 and not (isinstance(ours.body, dict) and ours.body.get("message")):
        yield f"no message: {ours.body}"
