"""Sends dead letters back to their source topics: `DeadLetters.redrive` takes the steps that the package lists."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from types import MappingProxyType
from typing import Final

from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as Partition
from msgspec import Struct
from msgspec.structs import replace

from compactor.model.record import TopicPartition
from connectors.chain.spec import changes_records
from connectors.config.connector import ConnectorConfig
from connectors.config.selection import is_source, matches
from connectors.config.stores import connector_storage
from connectors.config.worker import WorkerConfig
from connectors.errors import ConflictError, UsageError
from connectors.kafka import groups
from connectors.kafka.admin import Admin
from connectors.kafka.client_settings import ClientSettings, Setting
from connectors.operations.redrive.floor import Positions, RedriveFloor
from connectors.operations.redrive.letters import Letter, LetterFilter, bounds, read_letters
from connectors.operations.redrive.plan import (
    FILTERED,
    GONE,
    NO_SOURCE,
    NOT_READ,
    OTHER_CONNECTOR,
    REPEATED,
    RedrivenRecords,
    RedrivePosition,
    RedriveSelection,
    RedriveTarget,
    batches,
    target_of,
)
from connectors.operations.redrive.producer import RedriveProducer, RedriveTargets

# How long (s) a redrive waits for a transaction of an earlier one that is not decided yet.
_PENDING_S: Final = 60.0
# The same for a command that only shows letters: it can go on without the positions.
_LOOK_S: Final = 5.0


class RedriveKafka(Struct, frozen=True):
    """What dead letters are read, sent back and kept count of with; a test gives others."""

    admin: Callable[[Mapping[str, Setting]], Admin] = Admin
    producer: Callable[[Mapping[str, Setting], str, str, Consumer], RedriveProducer] = RedriveProducer
    bounds: Callable[..., tuple[int, int]] = bounds
    read: Callable[..., Iterable[Letter]] = read_letters
    committed: Callable[..., Mapping[TopicPartition, groups.CommittedOffset | None]] = groups.committed


class RedriveResult(Struct, frozen=True):
    """What a run has done: letters that were sent back, by source topic, and those that were left, by why.

    `already`: those after the run's first letter that an earlier run had sent back. `limited`: the run stopped at its
    limit, so `left` and `already` count only what lies before that.
    """

    sent: dict[str, int]
    left: dict[str, int]
    already: int = 0
    limited: bool = False

    @property
    def matched(self) -> bool:
        """Whether a letter was met that the filters let through."""
        return bool(self.sent or self.left.keys() - {FILTERED, OTHER_CONNECTOR})


class LetterFates(Struct, frozen=True):
    """Which letters of `connector` have gone, by the positions of the partitions that have one.

    `records` are those of which a letter has gone, which then has gone for all of them.
    """

    connector: str
    positions: dict[int, RedrivePosition]
    records: RedrivenRecords

    def is_redriven(self, letter: Letter) -> bool:
        """Returns whether a letter has gone, or another one of its record."""
        return self._position(letter).is_redriven(letter, self.connector) or self.records.is_known(letter)

    def is_waiting(self, letter: Letter) -> bool:
        """Returns whether a letter may still go: it is not another connector's, and has not gone."""
        return self._position(letter).is_waiting(letter, self.connector) and not self.records.is_known(letter)

    def _position(self, letter: Letter) -> RedrivePosition:
        return self.positions.get(letter.partition, RedrivePosition())


class DeadLetters:
    """The dead letter topic of one connector."""

    def __init__(self, worker: WorkerConfig, connector: ConnectorConfig, kafka: RedriveKafka | None = None) -> None:
        if connector.dead_letter_topic is None:
            raise UsageError(
                f"Connector {connector.name} has no dead letter topic.",
                "Set errors.deadletterqueue.topic.name, with errors.tolerance=all.",
            )
        self.topic: Final = connector.dead_letter_topic
        self._connector = connector
        self._clients = ClientSettings.of(worker, connector)
        self._kafka = kafka or RedriveKafka()
        self._read = partial(self._kafka.read, context_headers=connector.dead_letter_context_headers)
        self._admin = self._kafka.admin(self._clients.admin())
        self._storage = connector_storage(worker, connector.name)

    def absent(self) -> str | None:
        """Returns a sentence if the topic does not exist. Raises UnreachableError, NotAllowedError."""
        if self._admin.describe([self.topic]):
            return None
        return f"Topic {self.topic} does not exist: the connector has not made it yet, or it was deleted."

    def letters(self, partition: int | None = None) -> Iterator[Letter]:
        """Yields all letters, or those of one partition, by partition and offset.

        None if the topic is not there yet. Raises UnreachableError, NotAllowedError.
        """
        for number, (low, end) in self.bounds(partition).items():
            yield from self.letters_in(number, low, end)

    def bounds(self, partition: int | None = None) -> dict[int, tuple[int, int]]:
        """Returns the first offset and the end of each partition, or of that one; none if there is no topic or no such.

        Raises UnreachableError, NotAllowedError.
        """
        info = self._admin.describe([self.topic]).get(self.topic)
        numbers = [number for number in range(info.partitions if info else 0) if partition in (None, number)]
        config = self._clients.consumer()
        return {number: self._kafka.bounds(config, self.topic, number) for number in numbers}

    def letters_in(self, partition: int, start: int, end: int) -> Iterator[Letter]:
        """Yields the letters of [start, end) of a partition by offset. Raises UnreachableError, NotAllowedError."""
        yield from self._read(self._clients.consumer(), self.topic, partition, start, end)

    def fates(self, starts: Mapping[int, int] = MappingProxyType({})) -> LetterFates:
        """Returns what the group's positions say of letters; changes nothing.

        Of a partition in `starts`, letters before that offset are not read: if one of them has gone, others of its
        record count as not gone.

        Raises UnreachableError, also if a transaction of a redrive is open, NotAllowedError, StorageError;
        ConflictError if positions are not keyfold's, or cannot be read.
        """
        info, records = self._admin.describe([self.topic]).get(self.topic), RedrivenRecords(self._connector.name)
        if info is None:
            return LetterFates(self._connector.name, {}, records)
        floor = RedriveFloor(self._storage, self.topic, info.id)
        with closing(groups.member(self._clients.admin(), self._connector.redrive_group_id)) as member:
            known = floor.filled(self._held(member, info.partitions, _LOOK_S))
        positions, config = {number: self._position(held) for number, held in known.items()}, self._clients.consumer()
        for number, position in positions.items():
            low, end = self._kafka.bounds(config, self.topic, number)
            start = max(low, starts.get(number, low))
            records.learn(position, self._read(config, self.topic, number, start, min(end, position.offset)))
        return LetterFates(self._connector.name, positions, records)

    def strange(self, asked: LetterFilter) -> Iterator[str]:
        """Yields a sentence for a topic and for a class of `asked` that no letter has; a source topic may have none.

        Reads letters until one has it, which none may have. Raises UnreachableError, NotAllowedError.
        """
        topic, class_name = asked.topic, asked.class_name
        if topic is not None and not matches(self._connector, topic) and not self._names("topic", topic):
            name = self._connector.name
            yield f"{topic} is no source topic of connector {name}, and no letter in {self.topic} names it."
        if class_name is not None and not self._names("class.name", class_name):
            yield f"No letter in {self.topic} has the class {class_name}; keyfold dlq list says which there are."

    def _check_topic(self, topic: str | None) -> None:
        """Raises UsageError for a topic that cannot be meant: a run that chooses nothing would seem to be done."""
        for sentence in self.strange(LetterFilter(topic)):
            raise UsageError(
                sentence, f"keyfold dlq list names the topics that letters in {self.topic} are of; nothing was sent."
            )

    def _names(self, what: str, text: str) -> bool:
        return any(letter.context.get(what) == text for letter in self.letters())

    def redrive(
        self,
        selection: RedriveSelection,
        *,
        dry_run: bool = False,
        limit: int | None = None,
        until: Mapping[int, int] | None = None,
        report: Callable[[int], None],
        chosen: Callable[[RedriveTargets], None] = lambda _: None,
        came_to: Callable[[Mapping[int, int]], None] = lambda _: None,
    ) -> RedriveResult:
        """Sends back what `selection` chooses, at most `limit` letters; `report` is called with how many are done.

        `chosen` is called with letters before they go, also with `dry_run`. What either raises ends the run: what went
        before is noted, and the rest stays for a later one.

        `came_to` is called at the end, with the offset that was come to in each partition that was begun. `until`: such
        offsets of an earlier run, from which on letters stay, and all of a partition that has none.

        What of `selection` depends on the connector is set here. With `dry_run` nothing is sent, and no position moves.
        Raises UnreachableError, NotAllowedError, OutcomeUnknownError, StorageError; ConflictError if another redrive
        runs; UsageError if the positions have no room for one more selection, and for a topic that is neither the
        connector's nor any letter's.
        """
        self._check_topic(selection.filter.topic)
        info = self._admin.describe([self.topic]).get(self.topic)
        if info is None:
            return RedriveResult({}, {})
        run = _Run(self._connector, self._clients, self._admin, self._read, self._selection(selection))
        run.report, run.chosen = report, chosen
        floor = RedriveFloor(self._storage, self.topic, info.id)
        with closing(groups.member(self._clients.admin(), self._connector.redrive_group_id)) as member:
            name, group = self._connector.redrive_transactional_id, self._connector.redrive_group_id
            config = self._clients.producer()
            sender = None if dry_run else self._kafka.producer(config, name, group, member)  # D1
            if sender is not None:
                floor.begin()
            known = floor.filled(self._held(member, info.partitions, _PENDING_S))  # D2
            config, numbers = self._clients.consumer(), range(info.partitions)
            ends = {number: self._kafka.bounds(config, self.topic, number) for number in numbers}
            positions = {number: self._position(known.get(number)).since(low) for number, (low, _) in ends.items()}
            run.check_room(positions)
            run.learn(positions, ends)
            ledger: _Ledger | None = None
            if sender is not None:
                floor.keep(known)  # before anything is sent: if that cannot be written, nothing is
                ledger = _Ledger(sender, floor, self.topic, known)
            limited = False
            for number, position in positions.items():
                low, end = ends[number]
                reach = low, end if until is None else min(end, until.get(number, 0))
                if not run.redrive_partition(number, position, reach, limit, ledger):
                    limited = True
                    break
        came_to(run.ends)
        return run.result(limited=limited)

    def _held(self, member: Consumer, partitions: int, pending_s: float) -> dict[int, groups.CommittedOffset | None]:
        tps = [TopicPartition(self.topic, number) for number in range(partitions)]
        group = self._connector.redrive_group_id
        committed = self._kafka.committed(member, self._clients.admin(), group, tps, pending_s)
        return {tp.partition: held for tp, held in committed.items()}

    def _selection(self, asked: RedriveSelection) -> RedriveSelection:
        topics = self._connector.topics or ()
        source = len(topics) == 1 and bool(self._admin.describe(topics))
        return replace(asked, source=source, transforms=changes_records(self._connector.chain_spec()))

    def _position(self, held: groups.CommittedOffset | None) -> RedrivePosition:
        try:
            return RedrivePosition.of(*held) if held is not None else RedrivePosition()
        except ValueError as error:
            raise ConflictError(
                f"Group {self._connector.redrive_group_id} holds a position of {self.topic} that is not of keyfold: "
                f"{error}.",
                "Another consumer uses that group; set its offset to the earliest to begin with the first letter.",
            ) from None


class _Ledger:
    """Sends letters, and records what has gone: first in the group, then in the connector's storage."""

    def __init__(self, sender: RedriveProducer, floor: RedriveFloor, topic: str, known: Positions) -> None:
        self._sender = sender
        self._floor = floor
        self._topic = topic
        self._known = dict(known)

    def transaction(self, number: int, position: RedrivePosition, targets: RedriveTargets) -> None:
        """Takes steps D3 to D6 for letters of the partition `number`."""
        self._sender.transaction(Partition(self._topic, number, position.offset, position.metadata), targets)
        self._known[number] = (position.offset, position.metadata)
        self._floor.keep(self._known)  # D6


class _Run:
    """One run over the partitions of the dead letter topic."""

    def __init__(
        self,
        connector: ConnectorConfig,
        clients: ClientSettings,
        admin: Admin,
        read: Callable[..., Iterable[Letter]],
        selection: RedriveSelection,
    ) -> None:
        # Are told how many letters are done, and which go next.
        self.report: Callable[[int], None] = lambda _: None
        self.chosen: Callable[[RedriveTargets], None] = lambda _: None
        self._connector = connector.name
        self._is_source = partial(is_source, connector)
        self._group = connector.redrive_group_id
        self._topic = connector.dead_letter_topic or ""
        self._source = connector.topics[0] if connector.topics else ""
        self._has_one = len(connector.topics or ()) == 1
        self._clients = clients
        self._admin = admin
        self._read = read
        self._selection = selection
        self._records = RedrivenRecords(connector.name, every=not selection.once)
        self._partitions: dict[str, int | None] = {}
        # Topics that chosen letters name, and that the connector does not read; it only grows.
        self._not_read: set[str] = set()
        self._sent: Counter[str] = Counter()
        self._left: Counter[str] = Counter()
        self._already = 0
        # By partition, how far the run has come.
        self.ends: dict[int, int] = {}
        self._is_met = False
        """Whether the filters have let through a letter of the partition at hand."""

    def result(self, *, limited: bool) -> RedriveResult:
        """Returns what was done."""
        return RedriveResult(dict(self._sent), dict(self._left), self._already, limited)

    def check_room(self, positions: Mapping[int, RedrivePosition]) -> None:
        """Raises UsageError if the position of a partition could not say how far this run comes."""
        for number, position in positions.items():
            if not position.has_room_for(self._selection):
                raise self._no_room(number)

    def learn(self, positions: Mapping[int, RedrivePosition], ends: Mapping[int, tuple[int, int]]) -> None:
        """Reads the letters that have gone, to know their records; all partitions' before the first is handled.

        If each letter is sent, that is needed only if a run has ever passed over any.
        """
        if not self._selection.once and not any(position.has_passed_over for position in positions.values()):
            return
        for number, position in positions.items():
            low, end = ends[number]
            until = min(end, position.offset)
            if until > low:
                self._records.learn(position, self._read(self._clients.consumer(), self._topic, number, low, until))

    def redrive_partition(
        self,
        number: int,
        position: RedrivePosition,
        ends: tuple[int, int],
        limit: int | None,
        ledger: _Ledger | None,
    ) -> bool:
        """Handles one partition, a transaction for some letters; without `ledger` it only counts.

        Returns whether the run goes on: it does not once `limit` letters were sent.
        """
        low, end = ends
        start = max(low, position.start(self._selection))
        self._is_met = False
        for batch in batches(self._read(self._clients.consumer(), self._topic, number, start, end)):
            room = None if limit is None else limit - self._sent.total()
            position, targets = self.decided(number, position, batch, room)
            self.chosen(targets)
            if targets and ledger is not None:
                ledger.transaction(number, position, targets)
            self._count(targets)
            self.ends[number] = targets[-1][0].offset + 1 if targets else start
            if room is not None and len(targets) == room:
                return False
        self.ends[number] = end
        if ledger is not None:  # also if nothing was sent: brokers keep a position from its last commit on
            ledger.transaction(number, self._noted(position, end), [])
        return True

    def _noted(self, position: RedrivePosition, end: int) -> RedrivePosition:
        """Notes how far the run has come, unless its filters let no letter through: a name of theirs may be wrong."""
        is_meant = self._is_met or self._selection.filter == LetterFilter()
        return position.noted(self._selection, end) if is_meant else position

    def decided(
        self, number: int, position: RedrivePosition, letters: Sequence[Letter], limit: int | None
    ) -> tuple[RedrivePosition, list[tuple[Letter, RedriveTarget]]]:
        """Decides about letters in their order, until `limit` of them are chosen."""
        targets: list[tuple[Letter, RedriveTarget]] = []
        end = 0
        self._describe(letters)
        for letter in letters:
            if len(targets) == limit:
                break
            self._decide(position, letter, targets)
            end = letter.offset + 1
        position = self._noted(position, end)
        if not position.fits:
            raise self._no_room_for_missing(number)
        return position, targets

    def _decide(self, position: RedrivePosition, letter: Letter, targets: list[tuple[Letter, RedriveTarget]]) -> None:
        """Counts a letter that stays, or adds it to `targets`."""
        self._is_met |= self._selection.filter.matches(letter)
        why = self._selection.why_left(letter, self._connector)
        if self._records.has_gone(position, letter, is_chosen=why is None):
            self._already += 1
            return
        if why is None and self._selection.once and self._records.is_known(letter):
            why = REPEATED
        known = {name: count for name, count in self._partitions.items() if count is not None}
        target = target_of(letter, self._source, known) if why is None else None
        if target is not None:
            targets.append((letter, target))
            self._records.add(letter)
        else:
            waits = why == NO_SOURCE and self._has_one  # for the one topic that it can be of
            if why in (None, GONE) and letter.context.get("topic", self._source) in self._not_read:
                why = NOT_READ
            self._left[GONE if why is None or waits else why] += 1

    def _describe(self, letters: Iterable[Letter]) -> None:
        """Asks for the topics of letters that are chosen, each once; leaves those out that are missing.

        What a letter names is not asked for unless the connector reads it: others may have written the letter.
        """
        chosen = (letter for letter in letters if self._selection.why_left(letter, self._connector) is None)
        names = {letter.context.get("topic", self._source) for letter in chosen} - self._partitions.keys()
        self._not_read |= {name for name in names if not self._is_source(name)}
        topics = self._admin.describe(names - self._not_read)
        for name in sorted(names):
            self._partitions[name] = topics[name].partitions if name in topics else None
            if name not in topics:
                source = self._selection.source and name != self._source
                self._selection = replace(self._selection.without(name), source=source)

    def _count(self, targets: RedriveTargets) -> None:
        self._sent.update(target.topic for _, target in targets)
        self.report(self._sent.total())

    def _no_room_for_missing(self, number: int) -> UsageError:
        return UsageError(
            f"Group {self._group} has no room for one more topic that is gone, or no source, of letters of "
            f"{self._topic}-{number}. What was sent before is noted.",
            "Choose the letters of a topic that is there with --topic, one topic after the other.",
        )

    def _no_room(self, number: int) -> UsageError:
        return UsageError(
            f"Group {self._group} has no room for one more choice of letters of {self._topic}-{number}.",
            "Run it without --topic, --stage, --class and --limit: that takes the place of all choices before. Or "
            "choose as an earlier run did.",
        )
