"""Sends dead letters back to their source topics, each exactly once: steps D1 to D5 of docs/protocol.md."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import partial
from itertools import islice
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka import TopicPartition as Partition
from msgspec import Struct
from msgspec.structs import replace

from compactor.errors import OutcomeUnknownError
from compactor.failpoints import hit
from compactor.model.record import TopicPartition
from connectors.config.connector import ConnectorConfig
from connectors.config.worker import WorkerConfig
from connectors.errors import ConflictError, UsageError
from connectors.kafka import groups, producers
from connectors.kafka.admin import Admin
from connectors.kafka.client_settings import ClientSettings
from connectors.kafka.errors import cause, typed
from connectors.sinks.letters import Letter, bounds, read_letters
from connectors.sinks.redrive_plan import Place, Progress, Wanted, decide

DEADLINE_S: Final = 50.0
_BATCH: Final = 500
"""Letters of one transaction."""
_PENDING_S: Final = 60.0
Places = Sequence[tuple[Letter, Place]]
"""Letters, each with where it goes."""


class Filters(Struct, frozen=True):
    """Which letters a command is about, and how often a record may have come back."""

    topic: str | None = None
    stage: str | None = None
    class_name: str | None = None
    max_redrives: int = 3


class Redriven(Struct, frozen=True):
    """What a run has done: letters that went back, by source topic, and those that were left, by why.

    `already`: those that an earlier run had sent, behind one that was left. `more`: it ended early, as a position's
    metadata has no room for more holes.
    """

    sent: dict[str, int]
    left: dict[str, int]
    already: int = 0
    more: bool = False


class DeadLetters:
    """The dead letter topic of one connector."""

    def __init__(self, worker: WorkerConfig, connector: ConnectorConfig) -> None:
        if connector.dead_letter_topic is None:
            raise UsageError(
                f"Connector {connector.name} has no dead letter topic.",
                "Set errors.deadletterqueue.topic.name, with errors.tolerance=all.",
            )
        self.topic: Final = connector.dead_letter_topic
        self._connector = connector
        self._clients = ClientSettings.of(worker, connector)
        self._admin = Admin(self._clients.admin())
        self._group = f"{connector.group_id}-dlq"

    def partitions(self) -> list[int]:
        """Lists the partitions of the topic; none where it is not there yet. Raises UnreachableError."""
        found = self._admin.describe([self.topic]).get(self.topic)
        return list(range(found.partitions)) if found else []

    def letters(self) -> Iterator[Letter]:
        """Yields all letters, partition by partition. Raises UnreachableError, NotAllowedError."""
        config = self._clients.consumer()
        for number in self.partitions():
            yield from read_letters(config, self.topic, number, *bounds(config, self.topic, number))

    def redrive(
        self, filters: Filters, *, dry_run: bool = False, limit: int | None = None, report: Callable[[int], None]
    ) -> Redriven:
        """Sends what `filters` let through back, at most `limit` letters; `report` is called with how many are done.

        With `dry_run` nothing is sent, and no position moves. Raises UnreachableError, NotAllowedError,
        OutcomeUnknownError, ConflictError where another redrive runs.
        """
        wanted = self._wanted(filters)
        numbers = self.partitions()
        tps = [TopicPartition(self.topic, number) for number in numbers]
        with closing(groups.member(self._clients.admin(), self._group)) as member:
            producer = None if dry_run else self._producer()  # D1
            held = groups.committed(member, self._clients.admin(), self._group, tps, _PENDING_S)  # D2
            run = _Run(self._clients, self.topic, wanted, report)
            for tp in tps:
                position, metadata = held[tp] or (0, "")
                left = None if limit is None else limit - run.count
                if left == 0:
                    break
                run.partition(tp.partition, self._progress(position, metadata), left, producer, member)
        return run.result()

    def _wanted(self, filters: Filters) -> Wanted:
        topics = self._connector.topics or ()
        named = {letter.context["topic"] for letter in self.letters() if "topic" in letter.context}
        known = self._admin.describe({*topics, *named})
        return Wanted(
            connector=self._connector.name,
            partitions={name: info.partitions for name, info in known.items()},
            source=topics[0] if len(topics) == 1 else None,
            topic=filters.topic,
            stage=filters.stage,
            class_name=filters.class_name,
            max_redrives=filters.max_redrives,
            transforms=bool(self._connector.transforms),
        )

    def _producer(self) -> Producer:
        name = f"{self._connector.name}-dlq"
        return producers.initialised(producers.settings(self._clients.producer(), name, producers.LARGEST_BATCH))

    def _progress(self, position: int, metadata: str) -> Progress:
        try:
            return Progress.of(position, metadata)
        except ValueError as error:
            raise ConflictError(
                f"Group {self._group} holds a position of {self.topic} that is not of keyfold dlq: {error}.",
                "Another consumer uses that group; reset it, or delete it to begin with the first letter.",
            ) from None


class _Run:
    """One run over the partitions of the dead letter topic."""

    def __init__(self, clients: ClientSettings, topic: str, wanted: Wanted, report: Callable[[int], None]) -> None:
        self.count = 0
        self._clients = clients
        self._topic = topic
        self._wanted = wanted
        self._report = report
        self._sent: Counter[str] = Counter()
        self._left: Counter[str] = Counter()
        self._already = 0
        self._more = False

    def result(self) -> Redriven:
        """Returns what was done."""
        return Redriven(dict(self._sent), dict(self._left), self._already, self._more)

    def partition(
        self, number: int, progress: Progress, limit: int | None, producer: Producer | None, member: object
    ) -> None:
        """Handles one partition, a transaction for some letters; without `producer` it only counts."""
        config = self._clients.consumer()
        low, end = bounds(config, self._topic, number)
        start = max(low, progress.position)
        letters = read_letters(config, self._topic, number, start, end)
        while batch := list(islice(letters, _BATCH)):
            progress, places = self._decided(progress, batch, None if limit is None else limit)
            limit = None if limit is None else limit - len(places)
            if producer is not None:
                self._transaction(producer, member, number, progress, places)
            self._count(places)
            if not progress.fits or limit == 0:
                self._more = not progress.fits
                return
        if producer is not None:
            self._transaction(producer, member, number, progress.ended(end), [])

    def _decided(
        self, progress: Progress, letters: Sequence[Letter], limit: int | None
    ) -> tuple[Progress, list[tuple[Letter, Place]]]:
        """Decides about letters in their order, until `limit` of them go back or the metadata is full."""
        places: list[tuple[Letter, Place]] = []
        for letter in letters:
            if len(places) == limit or not progress.fits:
                break
            if progress.is_done(letter.offset):
                self._already += 1
                progress = progress.sent(letter.offset)
                continue
            found = decide(letter, self._wanted)
            if isinstance(found, str):
                self._left[found] += 1
                progress = progress.kept(letter.offset)
            else:
                places.append((letter, found))
                progress = progress.sent(letter.offset)
        return progress, places

    def _count(self, places: Places) -> None:
        self._sent.update(place.topic for _, place in places)
        self.count += len(places)
        self._report(self.count)

    def _transaction(
        self,
        producer: Producer,
        member: object,
        number: int,
        progress: Progress,
        places: Places,
    ) -> None:
        """Takes steps D3 to D5 for the letters `places`. Raises what DeadLetters.redrive raises."""
        bootstrap = str(self._clients.producer().get("bootstrap.servers"))
        try:
            self._steps(producer, member, Partition(self._topic, number, progress.position, progress.metadata), places)
        except KafkaException as error:
            found = cause(error)
            if found.code() in _FENCED:
                raise ConflictError(
                    f"Another redrive of {self._topic} has taken over.", "Let it end, and look with --dry-run."
                ) from error
            raise typed(found, f"Letters of {self._topic}-{number} cannot be sent back", bootstrap, None) from error

    def _steps(self, producer: Producer, member: object, position: Partition, places: Places) -> None:
        failures: list[KafkaError] = []
        producer.begin_transaction()
        for letter, place in places:  # D3
            producer.produce(
                place.topic, letter.value, letter.key, place.partition, partial(_failed, failures), None,
                letter.timestamp, list(letter.sent_back()),
            )  # fmt: skip
            producer.poll(0)
        producer.flush(DEADLINE_S)
        if failures:
            producers.call_until_answered(producer.abort_transaction, DEADLINE_S, lambda: False)
            raise KafkaException(failures[0])
        hit("redrive.sent")
        metadata = member.consumer_group_metadata()  # type: ignore[attr-defined]  # a Consumer
        add = partial(producer.send_offsets_to_transaction, [position], metadata)
        producers.call_until_answered(add, DEADLINE_S, lambda: False)  # D4
        hit("redrive.offsets")
        try:
            producers.call_until_answered(producer.commit_transaction, DEADLINE_S, lambda: False)  # D5
        except KafkaException as error:
            if cause(error).txn_requires_abort() or cause(error).fatal():
                raise
            raise OutcomeUnknownError(
                "The commit of a transaction of letters was not answered.",
                "Run the command again: the group's position says whether it took effect.",
            ) from error
        hit("redrive.committed")


_FENCED: Final = frozenset((KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH))


def _failed(failures: list[KafkaError], error: KafkaError | None, _message: Message) -> None:
    if error is not None:
        failures.append(error)


def counts(letters: Iterator[Letter]) -> list[LetterCount]:
    """Counts letters by source topic, stage, class and error, with the first and last time (ms) of each."""
    found: dict[tuple[str, ...], LetterCount] = {}
    for letter in letters:
        names = tuple(letter.context.get(name, "") for name in ("topic", "stage", "class.name", "exception.class.name"))
        known = found.get(names)
        if known is None:
            topic, stage, class_name, exception = names
            known = LetterCount(topic, stage, class_name, exception, 0, letter.timestamp, letter.timestamp)
        found[names] = replace(
            known,
            count=known.count + 1,
            first_ms=min(known.first_ms, letter.timestamp),
            last_ms=max(known.last_ms, letter.timestamp),
        )
    return sorted(found.values(), key=lambda one: -one.count)


class LetterCount(Struct, frozen=True):
    """How many letters there are of one kind; empty texts where letters do not say it."""

    topic: str
    stage: str
    class_name: str
    exception: str
    count: int
    first_ms: int
    last_ms: int
