"""A dead letter topic in memory, with its source topics, and what was sent back to them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from confluent_kafka import TopicPartition as Partition

from connectors.kafka import groups
from connectors.kafka.admin import TopicInfo
from connectors.operations.redrive.letters import Letter
from connectors.operations.redrive.producer import RedriveTargets
from connectors.operations.redrive.run import RedriveKafka
from connectors.ui.app import WorkerPage
from tests.support.deployment import Deployment
from tests.support.kafka import create_topic
from tests.support.rest import RestWorker, rest_worker_with_page

DEAD = "dead"
KEY_OF_VALUE = {
    "value.converter": "keyfold.Json",
    "value.converter.schemas.enable": "false",
    "transforms": "id",
    "transforms.id.type": "ValueToKey",
    "transforms.id.fields": "id",
    "key.converter": "keyfold.Json",
    "key.converter.schemas.enable": "false",
}
"""The settings of a chain that makes the key of a field; it takes no record whose value is no JSON."""
KEEPS_LETTERS = {**KEY_OF_VALUE, "errors.tolerance": "all", "errors.deadletterqueue.context.headers.enable": "true"}
"""The same, of a connector that keeps such records as dead letters, once it has a topic for them."""


def deployment_with_letters(folder: Path, bootstrap: str, topic: str) -> Deployment:
    """Returns a connector of a new topic of two partitions, with the settings KEEPS_LETTERS; not run yet."""
    create_topic(bootstrap, topic, 2, cleanup_policy="delete")
    made = Deployment(folder, bootstrap, topic).publishing_only()
    made.settings |= {**KEEPS_LETTERS, "errors.deadletterqueue.topic.name": f"{topic}.dead"}
    return made


def letter(offset: int, value: bytes | None = b"v", partition: int = 0, /, **context: str) -> Letter:
    """Returns a letter of connector `a`, of the record at the same offset of topic `t`; `context` changes what it says.

    Names have underscores for dots; an empty text takes one out.
    """
    said = {"connector.name": "a", "topic": "t", "partition": "0", "offset": str(offset), "stage": "VALUE_CONVERTER"}
    said |= {"class.name": "keyfold.Json", "exception.class.name": "connectors.errors.DataError"}
    said |= {"exception.message": "It is no JSON."}
    said |= {name.replace("_", "."): text for name, text in context.items()}
    return Letter(
        partition,
        offset,
        1_000 + offset,
        b"k%d" % offset,
        value,
        (),
        {n: t for n, t in said.items() if t},
        2_000 + offset,
    )


class DeadTopic:
    """The topic DEAD with `letters`; a test may change them, and what is done before each read and each transaction."""

    def __init__(self, *letters: Letter, partitions: int = 1) -> None:
        self.letters = list(letters)
        self.topics = {DEAD: partitions, "t": 1}
        self.held: dict[int, groups.CommittedOffset] = {}
        self.sent: list[int] = []
        self.ends: dict[int, int] = {}
        # The ranges of offsets that were read.
        self.ranges: list[tuple[int, int, int]] = []

    def kafka(self) -> RedriveKafka:
        """What letters are read and sent back with."""
        this: Any = self
        return RedriveKafka(
            admin=lambda _: this,
            producer=lambda *_: this,
            bounds=self.bounds,
            read=self.read,
            committed=lambda *asked: {tp: self.held.get(tp.partition) for tp in asked[3]},
        )

    def end(self, number: int) -> int:
        last = max((each.offset for each in self.letters if each.partition == number), default=-1)
        return self.ends.get(number, last + 1)

    def bounds(
        self, _config: object, _topic: str, number: int, *, left_s: Callable[[], float] = lambda: 60.0
    ) -> tuple[int, int]:
        assert left_s() <= 60.0
        return 0, self.end(number)

    def before_read(self) -> None:
        """Is called on the thread that reads."""

    def before_transaction(self) -> None:
        """Is called on the thread that sends."""

    def describe(self, names: Iterable[str]) -> dict[str, TopicInfo]:
        return {name: TopicInfo(name, f"id-{name}", self.topics[name]) for name in names if name in self.topics}

    def read(
        self,
        _config: Mapping[str, object],
        _topic: str,
        number: int,
        start: int,
        end: int,
        *,
        context_headers: bool,
        **_: object,
    ) -> Iterator[Letter]:
        assert context_headers
        self.before_read()
        self.ranges.append((number, start, end))
        yield from (each for each in [*self.letters] if each.partition == number and start <= each.offset < end)

    def transaction(self, position: Partition, targets: RedriveTargets) -> None:
        self.before_transaction()
        self.sent += [each.offset for each, _ in targets]
        self.held[position.partition] = (position.offset, position.metadata or "")


@contextmanager
def worker_of(folder: Path, topic: DeadTopic, **settings: str) -> Iterator[RestWorker]:
    """Runs a worker with a page that has the dead letters of `topic`."""
    with rest_worker_with_page(folder, partial(WorkerPage, letters=topic.kafka()), **settings) as worker:
        yield worker
