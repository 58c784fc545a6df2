"""Looks of several connectors, and of several people, at once."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from connectors.clock import SystemClock
from connectors.config.files import load_worker
from connectors.errors import UnreachableError
from connectors.operations.redrive.letters import LetterFilter
from connectors.operations.redrive.run import RedriveKafka
from connectors.rest.slow_calls import Slow
from connectors.ui.letters.reads import A_CONNECTOR, LetterReads
from tests.support.browser import browse, words
from tests.support.dead_letters import DeadTopic, letter, worker_of
from tests.support.kafka import wait_until
from tests.support.rest import RestWorker
from tests.unit.connectors.ui.letters.conftest import SETTINGS

OTHER = {**SETTINGS, "topics": "u", "errors.deadletterqueue.topic.name": "dead.u"}


class HangingTopic(DeadTopic):
    """Reads of topic DEAD wait until `going`; `waiting` counts them."""

    def __init__(self) -> None:
        super().__init__(letter(0))
        self.topics["dead.u"] = 1
        self.going = threading.Event()
        self.waiting = 0

    def kafka(self) -> RedriveKafka:
        inner = super().kafka()

        def read(config: Any, topic: str, *place: Any, **more: Any) -> Iterator[Any]:
            if topic == "dead":
                self.waiting += 1
                self.going.wait(30)
            return iter(inner.read(config, topic, *place, **more))

        return replace(inner, read=read)


@contextmanager
def hanging(folder: Path, most: int) -> Iterator[tuple[RestWorker, HangingTopic, ThreadPoolExecutor]]:
    """A worker of two connectors, and threads for those who ask it; the first one's brokers hang."""
    topic = HangingTopic()
    with worker_of(folder, topic) as worker, ThreadPoolExecutor(most) as people:
        try:
            worker.create("a", **SETTINGS)
            worker.create("b", **OTHER)
            yield worker, topic, people
        finally:
            topic.going.set()


def test_one_connectors_brokers_hold_up_no_other(tmp_path: Path) -> None:
    """Nor what is answered from memory; who looks at the same is answered as well, and others are refused."""
    with hanging(tmp_path, 4) as (worker, topic, people):
        first = [people.submit(browse, worker, "/ui/connectors/a/letters") for _ in range(2)]
        others = [people.submit(browse, worker, f"/ui/connectors/a/letters/at/0/{at}") for at in range(A_CONNECTOR - 1)]
        wait_until(lambda: topic.waiting == A_CONNECTOR, "all wait")
        refused = browse(worker, "/ui/connectors/a/letters?topic=x")
        assert (refused.status_code, "Load the page again." in words(refused.text)) == (503, True)
        assert "1 letter was looked at" in words(browse(worker, "/ui/connectors/b/letters").text)
        assert browse(worker, "/ui/connectors/a").status_code == 200
        topic.going.set()
        assert ["1 letter was looked at" in words(each.result(20).text) for each in first] == [True, True]
        assert [each.result(20).status_code for each in others] == [200] * len(others)
        assert browse(worker, "/ui/connectors/a/letters?topic=x").status_code == 200


def test_a_page_waits_no_longer_than_a_person(tmp_path: Path) -> None:
    """It says that it was not read, and what is under way keeps its place until it ends."""
    with hanging(tmp_path, 1) as (worker, topic, _):
        context: Any = SimpleNamespace(worker=load_worker(tmp_path / "worker.json"), clock=SystemClock(), slow=Slow())
        reads = LetterReads(context, topic.kafka(), answer_s=0.2)
        connector = worker.herder.connector("a")

        async def ask() -> None:
            for _ in range(2):
                with pytest.raises(UnreachableError, match=r"not read within 0\.2 s"):
                    await reads.look(connector, LetterFilter())
            assert topic.waiting == 1
            topic.going.set()
            assert (await LetterReads(context, topic.kafka()).look(connector, LetterFilter())).letters == 1

        asyncio.run(ask())


def test_few_wait_for_one_look(tmp_path: Path) -> None:
    """Each has a connection, of which others are left."""
    with hanging(tmp_path, 20) as (worker, topic, people):
        most = Slow().letters.most + Slow().letters.most_waiting
        asked = [people.submit(browse, worker, "/ui/connectors/a/letters") for _ in range(most + 1)]
        wait_until(lambda: any(each.done() for each in asked), "one is refused")
        assert [each.result().status_code for each in asked if each.done()] == [503]
        topic.going.set()
        assert sorted(each.result(20).status_code for each in asked) == [200] * most + [503]
