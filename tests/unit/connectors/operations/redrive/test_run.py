"""A redrive's run: what it sends in which transaction, what it leaves, and what it notes of both."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from confluent_kafka import TopicPartition as Partition
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from compactor.errors import StorageError
from connectors.config.connector import ConnectorConfig
from connectors.config.stores import connector_storage
from connectors.config.worker import WorkerConfig
from connectors.errors import ConflictError, UsageError
from connectors.kafka import groups
from connectors.kafka.admin import TopicInfo
from connectors.operations.redrive.counts import counts
from connectors.operations.redrive.floor import RedriveFloor
from connectors.operations.redrive.letters import Letter, LetterFilter
from connectors.operations.redrive.plan import BATCH_LETTERS, RedrivePosition, RedriveSelection
from connectors.operations.redrive.producer import RedriveTargets
from connectors.operations.redrive.run import DeadLetters, RedriveKafka, RedriveResult

ALL = RedriveSelection(3)
CONFIG = ConnectorConfig.model_validate(
    {
        "name": "c",
        "connector.class": "keyfold.CompactedTopic",
        "topics": "t,u",
        "errors.tolerance": "all",
        "errors.deadletterqueue.topic.name": "dead",
        "errors.deadletterqueue.context.headers.enable": "true",
    }
)


def letter(partition: int, offset: int, topic: str) -> Letter:
    """Returns a letter of a topic."""
    return Letter(partition, offset, 7, b"k", b"v", (), {"connector.name": "c", "topic": topic})


class World:
    """A dead letter topic, its sources, what the group holds, and what was sent."""

    def __init__(self, folder: Path, letters: Sequence[Letter], **more: str) -> None:
        settings: dict[str, Any] = {"bootstrap.servers": "127.0.0.1:1", "storage.location": str(folder)}
        self.worker = WorkerConfig(**settings)
        given = {**CONFIG.given, **more}
        if "topics.regex" in more:
            del given["topics"]
        self.config = ConnectorConfig.model_validate(given)
        self.letters = list(letters)
        self.topics = {"dead": 2, "t": 1, "u": 1}
        self.asked: list[str] = []
        self.held: dict[int, groups.CommittedOffset] = {}
        self.sent: list[tuple[int, int]] = []
        self.read: list[tuple[int, int]] = []
        self.transactions = 0
        self.storage = connector_storage(self.worker, "c")
        self.ends: Callable[[int], int] = lambda _: 10_000
        """The end of a partition of the dead letter topic."""
        self.answers: list[dict[str, TopicInfo]] = []
        """What the next questions for topics are answered with, before the topics that there are."""
        self.dies = False

    def describe(self, names: Iterable[str]) -> dict[str, TopicInfo]:
        if self.answers:
            return self.answers.pop(0)
        self.asked += names
        return {name: TopicInfo(name, f"id-{name}", self.topics[name]) for name in names if name in self.topics}

    def transaction(self, position: Partition, targets: RedriveTargets) -> None:
        assert all(one.partition == position.partition for one, _ in targets)
        self.transactions += 1
        self.sent += [(one.partition, one.offset) for one, _ in targets]
        self.held[position.partition] = (position.offset, position.metadata or "")
        if self.dies:
            raise KeyboardInterrupt

    def records(self) -> list[str]:
        """The source offsets of the letters that were sent, in their order."""
        by_place = {(one.partition, one.offset): one.context["offset"] for one in self.letters}
        return [by_place[place] for place in self.sent]

    def _letters(
        self, _config: object, _topic: str, number: int, start: int, end: int, *, context_headers: bool
    ) -> Iterable[Letter]:
        assert context_headers is self.config.dead_letter_context_headers
        self.read.append((number, start))
        return (one for one in self.letters if one.partition == number and start <= one.offset < end)

    def dead(self) -> DeadLetters:
        """What `keyfold dlq` looks into."""
        this: Any = self
        kafka = RedriveKafka(
            admin=lambda _: this,
            producer=lambda *_: this,
            bounds=lambda _config, _topic, number: (0, self.ends(number)),
            read=self._letters,
            committed=lambda *asked: {tp: self.held.get(tp.partition) for tp in asked[3]},
        )
        return DeadLetters(self.worker, self.config, kafka)

    def run(self, selection: RedriveSelection = ALL, **how: Any) -> RedriveResult:
        """What `keyfold dlq redrive` does."""
        return self.dead().redrive(selection, report=lambda _: None, **how)


MIXED = [letter(at % 2, at, "tu"[at // 2 % 2]) for at in range(3_000)]


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path, MIXED)


def test_every_second_letter_left_holds_nothing_up(world: World) -> None:
    """The next run sends the others, and the one after that begins at the end."""
    assert world.run(RedriveSelection(3, LetterFilter("u"))).sent == {"u": 1_500}
    part = world.run(limit=700)
    assert (part.sent, part.limited) == ({"t": 700}, True)
    last = world.run(limit=801)
    assert (last.sent, last.left, last.limited) == ({"t": 800}, {}, False)
    assert sorted(world.sent) == sorted((one.partition, one.offset) for one in MIXED)
    world.read.clear()
    assert world.run() == RedriveResult({}, {})
    assert world.read == [(0, 10_000), (1, 10_000)]


def test_a_dry_run_counts_and_changes_nothing(world: World) -> None:
    """Neither the group nor the storage."""
    assert world.run(dry_run=True, limit=5).sent == {"t": 3, "u": 2}
    assert (world.sent, world.held, world.storage.walk("")) == ([], {}, [])


def test_letters_of_a_topic_that_is_gone_are_sent_once_it_is_back(world: World) -> None:
    """Those behind them go meanwhile; each topic is asked for once."""
    del world.topics["u"]
    first = world.run()
    assert (first.sent, first.left) == ({"t": 1_500}, {"source topic is gone": 1_500})
    assert sorted(world.asked) == ["dead", "t", "u"]
    world.topics["u"] = 1
    assert world.run().sent == {"u": 1_500}
    assert len(set(world.sent)) == len(world.sent) == 3_000


@pytest.mark.parametrize(
    ("topics", "named"),
    [
        ({"topics": "t,u"}, "payments"),
        ({"topics": "t,u"}, "dead"),
        ({"topics.regex": "[tu]"}, "t.compacted"),
        ({"topics.regex": ".*"}, "__consumer_offsets"),
        ({"topics.regex": ".*"}, "t\n"),
        ({"topics.regex": "(x+x+)+y|[tu]"}, "x" * 100_000),
    ],
    ids=["other", "its letters", "its output", "internal", "no name", "long"],
)
def test_a_letter_goes_to_no_topic_that_the_connector_does_not_read(
    tmp_path: Path, topics: dict[str, str], named: str
) -> None:
    """Whatever its headers name, and though there is such a topic: they may be forged. It is asked for no topic."""
    world = World(tmp_path, [letter(0, 0, "t"), letter(0, 1, named), letter(0, 2, "u")], **topics)
    world.topics[named] = 1
    result = world.run()
    assert (result.sent, result.left) == ({"t": 1, "u": 1}, {"source topic is none of the connector's": 1})
    assert named not in world.asked or named == "dead"
    assert world.run() == RedriveResult({}, {"source topic is none of the connector's": 1}, already=2)


def test_letters_of_a_topic_that_is_no_source_are_sent_once_it_is_one(tmp_path: Path) -> None:
    """Those behind them have gone meanwhile, and go once."""
    world = World(tmp_path, [letter(0, 0, "u"), letter(0, 1, "t")], topics="t")
    assert world.run().sent == {"t": 1}
    world.config = ConnectorConfig.model_validate({**CONFIG.given, "topics": "t,u"})
    assert world.run().sent == {"u": 1}
    assert world.sent == [(0, 1), (0, 0)]


def test_letters_that_name_no_topic_wait_for_the_only_one(tmp_path: Path) -> None:
    """Also where it goes while the run is under way."""
    world = World(tmp_path, [replace(letter(0, 0, "t"), context={})], topics="t")
    unnamed = RedriveSelection(3, unnamed=True)
    dead = {"dead": TopicInfo("dead", "id-dead", 1)}
    world.answers = [dead, {"t": TopicInfo("t", "id-t", 1)}, {}, {}, {}]
    assert world.run(unnamed).left == {"source topic is gone": 1}
    world.answers = [dead, {}, {}, {}, {}]
    assert world.run(unnamed).left == {"source topic is gone": 1}
    world.answers = []
    assert world.run(unnamed).sent == {"t": 1}


def test_nothing_is_sent_where_the_storage_takes_no_position(world: World, tmp_path: Path) -> None:
    """It is written before the first transaction, with what the group holds."""
    (tmp_path / "c").write_text("no folder: nothing can be written into it")
    with pytest.raises(StorageError):
        world.run()
    assert world.sent == []


@pytest.mark.parametrize("expired", [True, False])
def test_positions_that_the_brokers_forget_are_known(world: World, expired: bool) -> None:
    """Also of a run that was killed before it could write them, unless brokers forget before the next run."""
    world.run(limit=10)
    world.held = {}
    assert world.run(limit=10).already == 0
    assert len(set(world.sent)) == 20
    world.dies = True
    with pytest.raises(KeyboardInterrupt):
        world.run(limit=10)
    world.dies = False
    world.held = {} if expired else world.held
    world.run(limit=10)
    assert len(world.sent) - len(set(world.sent)) == 10 * expired


def test_a_position_of_the_group_is_never_overruled(world: World) -> None:
    """An operator sets it back to send letters again."""
    world.run()
    world.held = {0: (0, ""), 1: (2_999, "")}
    assert sum(world.run().sent.values()) == 1_501


def test_a_transaction_has_few_letters(world: World) -> None:
    """And one at the end of each partition has none: brokers keep a position from its last commit on."""
    world.run()
    assert world.transactions == 2 * (1_500 // BATCH_LETTERS + 1)


def test_nothing_is_sent_where_the_choice_cannot_be_noted(world: World) -> None:
    """It says so beforehand; the storage that cannot be written does too."""
    position = RedrivePosition()
    while position.has_room_for(asked := RedriveSelection(3, LetterFilter(stage=f"{position.offset:0>200}"))):
        position = position.noted(asked, position.offset + 1)
    world.held = {1: (position.offset, position.metadata)}
    with pytest.raises(UsageError, match="dead-1"):
        world.run(asked)
    assert world.sent == []
    assert sum(world.run().sent.values()) == 3_000


def test_what_somebody_else_has_committed_is_named(world: World) -> None:
    """Nothing is sent from there."""
    world.held = {0: (3, "what is this")}
    with pytest.raises(ConflictError, match="keyfold-dlq-c"):
        world.run()
    assert RedriveFloor(world.storage, "dead", "id-dead").filled({0: None, 1: None}) == {}


def test_a_topic_that_is_not_there_yet_has_no_letters(world: World) -> None:
    """That is no error; it is said to be missing."""
    assert world.dead().absent() is None
    del world.topics["dead"]
    assert "Topic dead does not exist" in (world.dead().absent() or "")
    assert world.run() == RedriveResult({}, {})


@pytest.mark.parametrize(
    ("asked", "strange"),
    [
        (LetterFilter("nope"), ["nope is no source topic of connector c, and no letter in dead names it."]),
        (LetterFilter("t"), []),
        (LetterFilter("u"), []),
        (LetterFilter("old", class_name="x.Y"), []),
        (LetterFilter(class_name="no"), ["No letter in dead has the class no; keyfold dlq list says which there are."]),
    ],
)
def test_a_name_that_no_letter_has_is_said(tmp_path: Path, asked: LetterFilter, strange: list[str]) -> None:
    """A source topic may have no letters, and a letter may be of a topic that is none any more."""
    said = {"connector.name": "c", "topic": "old", "class.name": "x.Y"}
    world = World(tmp_path, [replace(letter(0, 0, "t"), context=said)])
    assert list(world.dead().strange(asked)) == strange


def test_a_run_says_whether_its_filters_let_a_letter_through(world: World) -> None:
    """Only where none was met, a name of theirs can be wrong."""
    assert not world.run(RedriveSelection(3, LetterFilter(class_name="nope"))).matched
    assert world.run(RedriveSelection(3, LetterFilter("u"))).matched


@pytest.mark.parametrize("forgotten", [False, True])
def test_letters_that_have_not_gone_are_waiting(world: World, forgotten: bool) -> None:
    """By what the group holds, or the storage where the brokers have forgotten it; never those of others."""
    world.letters.append(replace(letter(1, 4_001, "v"), context={"connector.name": "d", "topic": "v"}))
    before = {one.topic: (one.count, one.waiting) for one in counts(world.dead().letters(), world.dead().fates())}
    world.run(RedriveSelection(3, LetterFilter("u")))
    world.run(limit=700)
    world.held = {} if forgotten else world.held
    after = {one.topic: (one.count, one.waiting) for one in counts(world.dead().letters(), world.dead().fates())}
    assert before == {"t": (1_500, 1_500), "u": (1_500, 1_500), "v": (1, 0)}
    assert after == {"t": (1_500, 800), "u": (1_500, 0), "v": (1, 0)}
    assert [one.waiting for one in counts(iter(world.letters), None)] == [None] * 3


def test_letters_of_very_many_topics_that_are_gone_are_sent_by_topic(tmp_path: Path) -> None:
    """The position has no room for all of them; the error says what helps, and that does."""
    world = World(tmp_path, [*(letter(0, at, f"gone-{at}") for at in range(400)), letter(0, 400, "t")])
    with pytest.raises(UsageError, match="topic that is gone, or no source") as raised:
        world.run()
    assert "--topic" in raised.value.action
    assert world.run(RedriveSelection(3, LetterFilter("t"))).sent == {"t": 1}


def test_a_topic_that_nobody_knows_is_refused(world: World) -> None:
    """Nothing is sent, and no choice of its own stays in the position; it may be a letter's, or the connector's."""
    for dry_run in (False, True):
        with pytest.raises(UsageError, match="nope is no source topic of connector c"):
            world.run(RedriveSelection(3, LetterFilter("nope")), dry_run=dry_run)
    assert (world.sent, world.held, world.storage.walk("")) == ([], {}, [])
    world.letters = [letter(0, 0, "old")]
    assert world.run(RedriveSelection(3, LetterFilter("u"))).sent == {}
    assert world.run(RedriveSelection(3, LetterFilter("old"))).left == {"source topic is none of the connector's": 1}


def test_filters_that_let_no_letter_through_are_not_noted(world: World) -> None:
    """A class may be misspelt as well; what was noted before is committed again, as positions expire."""
    world.run(RedriveSelection(3, LetterFilter("u")), limit=10)
    before = dict(world.held)
    for _ in range(3):
        world.run(RedriveSelection(3, LetterFilter(class_name="nope")))
    assert world.held == {0: before[0], 1: (0, "")}
    assert sum(world.run().sent.values()) == 3_000 - 10


ONCE = replace(ALL, once=True)


def again(partition: int, offset: int, source_offset: int, value: bytes = b"v") -> Letter:
    """Returns a letter of the record at an offset of t-0."""
    said = {"connector.name": "c", "topic": "t", "partition": "0", "offset": str(source_offset)}
    return replace(letter(partition, offset, "t"), context=said, value=value)


@pytest.fixture
def resynced(tmp_path: Path) -> World:
    """Four records, of each of which two generations have made a letter; one of them in another partition."""
    world = World(tmp_path, [again(0, at, at % 4) for at in range(7)])
    world.letters.append(again(1, 0, 3))

    world.ends = lambda number: max(one.offset + 1 for one in world.letters if one.partition == number)
    return world


def test_of_the_letters_of_one_record_one_goes(resynced: World) -> None:
    """A source that was read again makes the same letters again; also in another partition, and in another run."""
    first = resynced.run(ONCE, limit=3)
    assert (first.sent, first.left) == ({"t": 3}, {})
    rest = resynced.run(ONCE)
    assert (rest.sent, rest.left) == ({"t": 1}, {"of a record that another letter has sent back": 4})
    assert resynced.sent == [(0, 0), (0, 1), (0, 2), (0, 3)]
    assert resynced.run(ONCE) == RedriveResult({}, {})
    assert [one.waiting for one in counts(resynced.dead().letters(), resynced.dead().fates())] == [0]


def test_letters_that_come_once_more_later_stay(resynced: World) -> None:
    """They are not waiting, and a run that finds them sends none of them."""
    resynced.run(ONCE)
    resynced.letters += [again(0, 7 + at, at) for at in range(4)]
    assert [one.waiting for one in counts(resynced.dead().letters(), resynced.dead().fates())] == [0]
    assert resynced.run(ONCE).sent == {}
    resynced.letters.append(again(1, 1, 0, b"of a topic that was recreated"))
    assert resynced.run(ONCE).sent == {"t": 1}


def test_every_letter_goes_if_that_is_asked_for(resynced: World) -> None:
    """Each once, also those that a run has passed over."""
    assert resynced.run(ONCE).sent == {"t": 4}
    assert resynced.run(ALL).sent == {"t": 4}
    assert sorted(resynced.sent) == sorted((one.partition, one.offset) for one in resynced.letters)
    assert resynced.run(ALL) == RedriveResult({}, {})
    assert resynced.run(ONCE) == RedriveResult({}, {})


@pytest.mark.parametrize("at", [(1, 0), (0, 1)], ids=["another partition", "behind it"])
def test_a_record_that_went_once_goes_once_more_for_a_letter_that_comes_to_it(
    tmp_path: Path, at: tuple[int, int]
) -> None:
    """In whatever order a run that sends every letter comes to both: which of them went makes no difference."""
    world = World(tmp_path, [replace(again(*at, 5), context={**again(0, 0, 5).context, "stage": "TASK_PUT"})])
    assert world.run(replace(ONCE, filter=LetterFilter(stage="TASK_PUT"))).sent == {"t": 1}
    world.letters.insert(0, again(0, 0, 5))
    assert (world.run(ALL).sent, len(world.sent)) == ({"t": 1}, 2)
    assert world.run(ALL) == RedriveResult({}, {})


def staged(partition: int, offset: int, source_offset: int, stage: str) -> Letter:
    """Returns a letter of the record at an offset of t-0 that has failed in `stage`."""
    one = again(partition, offset, source_offset)
    return replace(one, context={**one.context, "stage": stage})


@pytest.mark.parametrize("dies", [False, True], ids=["limit", "killed"])
def test_a_run_of_every_letter_that_is_cut_off_between_two_of_a_record_goes_on_there(
    tmp_path: Path, dies: bool
) -> None:
    """What an earlier run has sent for both of them is not sent again, whichever of them it was."""
    world = World(tmp_path, [staged(0, 0, 5, "X"), staged(0, 1, 9, "Y"), staged(1, 0, 5, "Y")])
    world.ends = lambda number: sum(one.partition == number for one in world.letters)
    assert world.run(replace(ONCE, filter=LetterFilter(stage="Y"))).sent == {"t": 2}
    world.letters.append(staged(0, 2, 5, "X"))
    world.dies = dies
    with pytest.raises(KeyboardInterrupt) if dies else nullcontext():
        world.run(ALL, limit=1)
    world.dies = False
    world.run(ALL)
    assert Counter(world.records()) == Counter({"5": 3, "9": 1})


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_a_record_goes_as_often_as_runs_are_asked_for(data: st.DataObject) -> None:
    """Once, unless every letter is asked for: then as often as it has letters, however the runs are cut off."""
    new_letters = st.lists(st.tuples(st.integers(0, 1), st.integers(0, 2), st.sampled_from("XY")), max_size=3)
    runs = st.tuples(st.booleans(), st.sampled_from([None, None, "X", "Y"]), st.sampled_from([None, 1, 2]))
    with TemporaryDirectory() as folder:
        world = World(Path(folder), [])
        world.ends = lambda number: sum(one.partition == number for one in world.letters)
        for _ in range(data.draw(st.integers(1, 6))):
            for partition, record, stage in data.draw(new_letters):
                world.letters.append(staged(partition, world.ends(partition), record, stage))
            once, chosen, limit = data.draw(runs)
            before = set(world.records())
            done = world.run(RedriveSelection(3, LetterFilter(stage=chosen), once=once), limit=limit)
            now = world.records()[-sum(done.sent.values()) :] if done.sent else []
            assert not once or (len(set(now)) == len(now) and not before & set(now))
        world.run(ALL)
        assert Counter(world.records()) == Counter(one.context["offset"] for one in world.letters)
        assert world.run(ONCE).sent == {}


def test_a_letter_that_was_not_chosen_leaves_its_record_to_another(resynced: World) -> None:
    """One that a filter has left has not gone: the next letter of its record does, and then stands for it."""
    for at, one in enumerate(resynced.letters):
        resynced.letters[at] = replace(one, context={**one.context, "stage": "KEY_CONVERTER" if at < 4 else "TASK_PUT"})
    assert resynced.run(replace(ONCE, filter=LetterFilter(stage="TASK_PUT"))).sent == {"t": 4}
    assert resynced.run(ONCE).left == {"of a record that another letter has sent back": 4}


def test_what_an_earlier_version_has_sent_counts_as_sent(resynced: World) -> None:
    """It sent each letter; asked for every letter there is none left."""
    assert resynced.run(ALL).sent == {"t": 8}
    assert "once" not in "".join(metadata for _, metadata in resynced.held.values())
    assert resynced.run(ALL) == RedriveResult({}, {})
