"""What each action leaves in the catalog's state, field by field."""

from __future__ import annotations

import pytest
from msgspec import UNSET
from msgspec.structs import replace

from compactor.errors import CatalogError, GapError
from compactor.model.actions import (
    AddPartition,
    AddSnapshot,
    AddTopic,
    AnyAction,
    Append,
    Clean,
    CloseTopic,
    Create,
    DropSnapshot,
    PlanFold,
    Publish,
    Rescope,
    RestoreLog,
    SetBuckets,
)
from compactor.model.log import BASE, OutputPoint, PartitionLog, Run, empty, upper
from compactor.model.log_transitions import append, publish
from compactor.model.record import TopicPartition
from compactor.model.state import MANY_A_BUCKET, CatalogState, Topic, apply, deal
from tests.support.logs import file, run

TP = TopicPartition("t", 0)
BASE_RUN = Run(start=10, end=40, level=BASE, files=(), records=0, bytes=0)


def log_of(state: CatalogState) -> PartitionLog:
    return state.log(TP)


def begun(*actions: Append | PlanFold | Publish | Clean) -> PartitionLog:
    """A log of which the offsets 10 to 50 are taken in, after `actions`."""
    added = AddPartition(topic="t", partition=0, bucket=0, start=10, backlog_end=50)
    return log_of(apply(CatalogState(), [added, Append(topic="t", partition=0, start=10, end=50), *actions]))


def snapshot(topic: str, name: str) -> AddSnapshot:
    return AddSnapshot(topic=topic, id=name, path=name, created_ms=0, source_offsets={}, records=0, bytes=0)


def sent(end: int, output: OutputPoint | None = None) -> Publish:
    return Publish(topic="t", partition=0, end=end, output=output)


def cleaned(end: int, output: OutputPoint | None = None, behind_ms: int | None = None) -> Clean:
    return Clean(topic="t", partition=0, end=end, base=BASE_RUN, at_ms=1, output=output, behind_ms=behind_ms)


@pytest.mark.parametrize(("given", "kept"), [(50, 50), (11, 11), (10, None), (None, None)])
def test_a_backlog_is_what_lies_beyond_the_first_offset(given: int | None, kept: int | None) -> None:
    """A partition that is empty when it is first seen has none."""
    assert empty(TP, 0, 10, given).backlog_end == kept


@pytest.mark.parametrize(("end", "left"), [(49, 50), (50, None)])
def test_a_backlog_ends_when_it_is_published_to_its_end(end: int, left: int | None) -> None:
    """One offset before its end it is still one."""
    assert begun(sent(end)).backlog_end == left


def test_a_batch_without_offsets_changes_nothing() -> None:
    """It continues the log wherever that ends; one that goes back, or leaves a hole, is refused."""
    log = begun()
    assert append(log, 50, 50, None, None) == log
    for start, end in ((50, 49), (51, 60), (49, 60)):
        with pytest.raises(GapError, match=rf"t-0: a batch of offsets \[{start}, {end}\) does not continue"):
            append(log, start, end, None, None)


def test_a_publish_without_an_output_point_keeps_the_last_one() -> None:
    """A fold of which nothing was sent moves the position alone."""
    first, second = OutputPoint(20, 5), OutputPoint(40, 9)
    assert begun(sent(20, first)).output == first
    assert begun(sent(20, first), sent(30)).output == first
    assert begun(sent(20, first), sent(40, second)).output == second


def test_published_never_goes_back() -> None:
    """A commit that says so is refused, by partition and offsets."""
    with pytest.raises(CatalogError, match="t-0: published would go back from 20 to 19"):
        publish(begun(sent(20)), 19, None)


def test_a_base_run_has_the_output_point_of_its_very_end() -> None:
    """The one that the fold was planned with, else the log's where it stands there; else the earlier one stays."""
    at_end, later = OutputPoint(40, 9), OutputPoint(45, 11)
    assert begun(sent(40, at_end), cleaned(40)).base_output == at_end
    assert begun(sent(40, at_end), sent(45, later), cleaned(40, at_end)).base_output == at_end
    assert begun(sent(45, later), cleaned(40)).base_output is None
    assert begun(sent(40, at_end), cleaned(40), sent(45, later), cleaned(42)).base_output == at_end


def test_a_plan_and_a_full_fold_note_since_when_records_are_sent_above() -> None:
    """A plan above published begins that time; a full fold below the end of sending carries its own on."""
    planned = begun(PlanFold(topic="t", partition=0, end=45, at_ms=7))
    assert (planned.ahead_ms, planned.behind_ms, planned.begun) == (7, 7, True)
    assert begun(sent(45), cleaned(40, behind_ms=3)).behind_ms == 3


def test_a_topic_is_added_with_its_output_and_closed_with_a_reason() -> None:
    """An unknown topic cannot be closed."""
    topic = Topic(topic="t", topic_id="id", output="t.compacted", output_id="out")
    added = AddTopic(topic="t", topic_id="id", output="t.compacted", output_id="out")
    assert apply(CatalogState(), [added]).topics == {"t": topic}
    assert apply(CatalogState(), [added, CloseTopic(topic="t", reason="deleted")]).topics["t"].closed == "deleted"
    with pytest.raises(CatalogError, match="Topic t is not in the catalog"):
        apply(CatalogState(), [CloseTopic(topic="t", reason="deleted")])


def test_buckets_are_dealt_to_all_partitions_anew() -> None:
    """In turn, by topic and partition."""
    added = [AddPartition(topic="t", partition=number, bucket=0, start=0) for number in range(3)]
    state = apply(CatalogState(), [*added, SetBuckets(count=2)])
    assert (state.buckets, [log.bucket for log in state.logs]) == (2, [0, 1, 0])


def test_another_scope_deals_partitions_and_names_the_spread_of_keys() -> None:
    """By topic as a whole, to the same number of ids; by partition in turn again, and no key is spread."""
    topics = [AddTopic(topic=name, topic_id=name, output=name, output_id=name) for name in "tu"]
    added = [AddPartition(topic=name, partition=number, bucket=0, start=0) for name in "tu" for number in range(2)]
    state = apply(CatalogState(), [*topics, *added, SetBuckets(count=2)])
    by_topic = apply(state, [Rescope(scope="topic", outputs={"t": 2})])
    assert (by_topic.scope, by_topic.buckets, [log.bucket for log in by_topic.logs]) == ("topic", 2, [0, 0, 1, 1])
    assert [topic.outputs for topic in by_topic.topics.values()] == [2, UNSET]
    assert apply(by_topic, [Rescope(scope="partition")]) == state


def test_few_partitions_are_dealt_in_turn_behind_those_there_are() -> None:
    """A large topic is published by all buckets, and one that is added goes on where the last one ended."""
    logs = [empty(TopicPartition("a", number), number, 0, None) for number in range(3)]
    assert deal([TopicPartition("b", number) for number in range(5)], logs, 4) == [3, 0, 1, 2, 3]


def test_of_many_partitions_each_topic_goes_as_a_whole_where_there_are_fewest() -> None:
    """From MANY_A_BUCKET a bucket on; what a connector had before stays where it is."""
    sizes = {"a": MANY_A_BUCKET, "b": 300, "c": 600, "d": 500}
    new = [TopicPartition(topic, number) for topic, size in sizes.items() for number in range(size)]
    old = [empty(TopicPartition("old", number), 1, 0, None) for number in range(100)]
    dealt = dict(zip(new, deal(new, old, 2), strict=True))
    found = {topic: {dealt[tp] for tp in new if tp.topic == topic} for topic in sizes}
    assert found == {"a": {0}, "b": {1}, "c": {1}, "d": {0}}
    assert len({*deal(new, (), 3)}) == 3, "with fewer a bucket each topic is spread"
    assert {*deal(new[:MANY_A_BUCKET], (), 3)} == {0, 1, 2}


def test_with_one_winner_per_topic_a_topic_goes_to_one_bucket_as_a_whole() -> None:
    """However few its partitions are; those that it gets later follow, as all its positions are in one transaction."""
    new = [TopicPartition(topic, number) for topic in ("a", "b") for number in range(2)]
    assert deal(new, (), 2, whole_topics=True) == [0, 0, 1, 1]
    old = [empty(TopicPartition("a", 0), 1, 0, None), empty(TopicPartition("b", 0), 0, 0, None)]
    assert deal([TopicPartition("a", 1), TopicPartition("a", 2)], old, 2, whole_topics=True) == [1, 1]
    actions = [AddPartition(topic=tp.topic, partition=tp.partition, bucket=0, start=0) for tp in new]
    created = Create(catalog_id="id", connector="c", scope="topic")
    state = apply(CatalogState(), [created, *actions, SetBuckets(count=2)])
    assert [log.bucket for log in state.logs] == [0, 0, 1, 1]


def test_buckets_of_many_partitions_are_dealt_by_topic_anew() -> None:
    """As `deal` does, so that a change of tasks.max does not take the topics apart."""
    logs = (empty(TopicPartition(f"t{number // 500}", number % 500), 0, 0, None) for number in range(2_000))
    after = apply(CatalogState(logs=tuple(logs)), [SetBuckets(count=2)])
    assert [after.log(TopicPartition(f"t{topic}", 499)).bucket for topic in range(4)] == [0, 1, 0, 1]
    assert len({(log.topic, log.bucket) for log in after.logs}) == 4


def test_a_snapshot_that_is_dropped_goes_alone() -> None:
    """By topic and id; the others stay in their order."""
    every = [snapshot("t", "a"), snapshot("t", "b"), snapshot("u", "a")]
    state = apply(CatalogState(), [*every, DropSnapshot(topic="t", id="a")])
    assert state.snapshots == (every[1], every[2])


def test_what_is_kept_by_topic_follows_each_action() -> None:
    """Logs stand by partition, snapshots in the order of their commits; a state leaves it to the next."""
    state = CatalogState()
    seen: list[tuple[int, int]] = []

    def commit(*actions: AnyAction) -> None:
        nonlocal state
        state = apply(state, actions)
        for topic in ("t", "u", "v"):
            mine = sorted((log for log in state.logs if log.topic == topic), key=lambda log: log.partition)
            assert state.logs_of(topic) == tuple(mine)
            assert state.snapshots_of(topic) == tuple(one for one in state.snapshots if one.topic == topic)
        seen.append((len(state.logs_of("t")), len(state.snapshots_of("t"))))

    commit()
    commit(*(AddPartition(topic=topic, partition=number, bucket=0, start=0) for number in (1, 0) for topic in "tu"))
    commit(Append(topic="t", partition=1, start=0, end=5))
    commit(snapshot("t", "b"), snapshot("t", "a"), snapshot("u", "a"))
    commit(AddPartition(topic="t", partition=2, bucket=0, start=0), SetBuckets(count=1))
    commit(DropSnapshot(topic="t", id="b"), DropSnapshot(topic="t", id="none"), snapshot("t", "c"))
    commit(RestoreLog(log=empty(TopicPartition("t", 3), 0, 0, None)))
    assert seen == [(0, 0), (2, 0), (2, 0), (2, 2), (3, 2), (3, 2), (4, 2)]
    assert replace(state, logs=(), snapshots=()).logs_of("t") == ()


def test_an_action_on_an_unknown_partition_is_refused() -> None:
    """It names the partition."""
    with pytest.raises(CatalogError, match="t-0 is not in the catalog"):
        apply(CatalogState(), [sent(20)])


@pytest.mark.parametrize(("start", "kept"), [(10, ["a", "b"]), (14, ["a", "b"]), (15, ["b"]), (19, ["b"])])
def test_the_upper_part_of_a_run_keeps_every_file_that_reaches_into_it(start: int, kept: list[str]) -> None:
    """A file whose last record is the first that is kept still counts."""
    whole = run(10, 20, [file(10, 14, 9, path="a"), file(15, 19, 9, path="b")])
    assert [one.path for one in upper(whole, start).files] == kept
