"""What happens to the connector whose files are kept: everything of which one of its files tells.

A stand-in for Kafka and one for Spark are beside the real engine (`tests.support.oracle.simulation`).
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from msgspec.structs import replace

from compactor.catalog.commits import CHECKPOINT_EVERY
from compactor.errors import SnapshotError
from compactor.model.actions import (
    AddTopic,
    AnyAction,
    BeginGeneration,
    CloseTopic,
    Refill,
    Reidentify,
    RenewTopic,
    ReopenTopic,
    Reorder,
    Rescope,
    RestoreLog,
    SetFence,
)
from compactor.model.fence import Fence
from compactor.model.log import Generation, generation_of
from compactor.model.record import TopicPartition
from compactor.model.state import OF_TOPIC
from compactor.quarantine.quarantine import QuarantineManager
from compactor.runs import paths
from compactor.runs.reader import read
from compactor.runs.scan import whole
from compactor.runs.writer import RunTarget, write_run
from compactor.settings import CompactionPolicy, EngineSettings
from compactor.snapshot.snapshots import Snapshots
from tests.support.engine import Row, gathered, range_report, row
from tests.support.local_spark import LocalFrame
from tests.support.memory.publisher import PublishFault, PublishStep
from tests.support.oracle import filling
from tests.support.oracle.simulation import CONNECTOR, OF_PARTITION, Simulation
from tests.support.oracle.source import as_read
from tests.support.oracle.steps import (
    PARTITIONS,
    Advance,
    ChangeOffset,
    FailingPublisher,
    Fold,
    Restart,
    Round,
    Settings,
    Snapshot,
    Tick,
    Vacuum,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

T0, T1, T2 = (TopicPartition("t", number) for number in range(3))
U0, U1 = (TopicPartition("u", number) for number in range(2))
W0: Final = TopicPartition("w", 0)
"""A topic that is not published."""

PLAIN: Final = Settings(
    buckets=2, level0=2, ratio=1.0, delete_retention=100_000, state_index="always", unchanged="skip"
)
"""Nothing is cleaned by itself; two runs are merged; runs have an index; what changes nothing is not sent."""
LAG: Final = PLAIN._replace(lag=1_000, level0=32)
EXPIRING: Final = PLAIN._replace(retention_ms=10_000, level0=32)
FIRST_OF_T2: Final = 100
ORDER: Final = "field:rank"
FAR_MS: Final = 1 << 62
"""A timestamp that lies beyond what a snapshot's column can tell."""

Record = tuple[bytes | None, bytes | None] | tuple[bytes | None, bytes | None, dict[str, Any]]


def _rank(number: int) -> Row:
    return {"key": "rank", "value": number.to_bytes(8, "big")}


class _Raw(Settings):
    """cleanup.policy=delete: nothing is folded by key."""

    @property
    def policy(self) -> CompactionPolicy:
        return replace(super().policy, cleanup_policy=("delete",))


def perform(folder: Path) -> Simulation:
    """The world below `folder` in which all of it has happened."""
    simulation = Simulation(None, folder, any_case=True, order=ORDER, fills=True, of_topics=True)
    history = _History(simulation)
    for part in (
        history.one_winner_over_a_topic,
        history.fold_and_snapshot,
        history.merge,
        history.keep_raw,
        history.lose_records,
        history.retain,
        history.set_aside,
        history.count_anew,
        history.close_topics,
        history.change_offsets,
        history.end,
    ):
        part()
    return simulation


class _History:
    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._batches = 0

    def one_winner_over_a_topic(self) -> None:
        """Keys of a topic that is deleted soon have one winner over its partitions; after that none have."""
        added = AddTopic(topic="s", topic_id="id-s", output="s.compacted", output_id="id-s.compacted", outputs=2)
        emptied = SetFence(topic="s", fence=Fence(b"n2500002", {1: 7}))
        self._commit(added, emptied, CloseTopic(topic="s", reason="deleted"), Rescope(scope=OF_PARTITION))
        self._simulation.source.of_topics = False

    def fold_and_snapshot(self) -> None:
        """Runs that were folded as they came, tombstones that get their horizons, snapshots of which one is dropped."""
        self._do(Restart(PLAIN))
        self._simulation.broker.safe_ms = 86_400_000
        self._outside("w", 2, published=False)
        self._simulation.broker.topics["w"].ends[1] = 5  # never read: its backlog stays
        headers = [{"key": "h", "value": b"\xff"}, {"key": "h", "value": None}, {"key": "", "value": b""}]
        self._take(T2, (b"a", b"long ago", {"timestamp": 1_000}), (b"b", b"long ago", {"timestamp": 2_000}))
        self._take(T0, (b"a", b"1"), (b"b", b"1", {"headers": headers}), (b"a", b"2"), (b"old", b"x"), (b"", b""))
        self._take(T1, (b"a", b"1", {"timestamp": 0}), (b"b", b"1", {"timestamp": FAR_MS, "timestamp_type": 1}))
        self._take(U0, (b"\xfe", b"\xff"), (b"x", b"1"))
        ranked = ((b"z", b"%d" % rank, {"headers": [_rank(rank)]}) for rank in (2, 1))
        self._take(W0, (b"a", b"1"), (b"a", None), *ranked)
        self._simulation.source.rows[W0].pop()
        self._do(Fold(), Snapshot(), Advance(1_500))
        self._take(T0, (b"old", None), (b"c", b"1"), (b"d", None))
        self._do(Fold(), Snapshot(), Advance(1_500))
        self._take(T0, (b"c", b"2", {"headers": [{"key": "k", "value": b"v"}]}))
        self._do(Fold())
        self._snapshot_as_text()
        self._do(Advance(1_500))

    def merge(self) -> None:
        """Runs of level 1, and one of level 0 above them, without a record that lost by the order; one is filled."""
        self._take(T0, (b"m", b"1"), (b"b", b"3"))
        self._take(T0, (b"m", b"2"), (b"n", None))
        self._do(Round())
        self._change_scope()
        ranked = ((b"ranked", b"%d" % rank, {"headers": [_rank(rank)]}) for rank in (2, 1))
        self._take(T0, (b"o", b"1"), (b"o", b"2"), *ranked, (b"f", b"1|2"), (b"f", b"?|3"))
        rows = self._simulation.source.rows[T0]
        rows[-1]["value"] = b"1|3"
        del rows[-3]

    def keep_raw(self) -> None:
        """A life that does not fold: records without a key are records as all others."""
        self._do(Restart(_Raw(*PLAIN)))
        self._take(U0, (None, b"raw"), (b"y", b"1"), (b"y", b"2"))
        self._do(Restart(PLAIN), Tick())
        self._take(U0, (None, b"rejected"), (b"z", b"1"))

    def lose_records(self) -> None:
        """A gap, and offsets that hold no record."""
        self._take(T1, (b"c", b"1"), lost=3, holes=2)

    def retain(self) -> None:
        """Retention takes what is from long ago."""
        self._take(T2, (b"a", b"new"), (b"c", b"new"))
        self._do(Restart(EXPIRING), Tick(), Round(), Restart(PLAIN), Tick())

    def set_aside(self) -> None:
        """A log is set aside because of a damaged file and taken up again; then another time, and it stays so."""
        self._take(U1, (b"a", b"1"), (b"b", b"1"))
        with self._damaged(U1):
            self._fold(U1)
        self._simulation.components.maintenance.release(self._now, [U1])
        self._do(Restart(LAG), Tick())
        self._take(U1, (b"a", b"2"))
        with self._damaged(U1):
            self._do(Advance(1_500), Tick())

    def count_anew(self) -> None:
        """A lag that ends inside a run, which is counted in pieces as it is folded."""
        self._take(T1, (b"a", b"2", {"timestamp": self._now - 2_000}), (b"a", b"3"), (b"d", b"1"), (b"e", b"1"))
        self._fold(T1)
        self._take(U0, (b"x", b"2"))

    def close_topics(self) -> None:
        """One stays closed."""
        closed = CloseTopic(topic="w", reason="no longer named"), CloseTopic(topic="u", reason="deleted")
        self._commit(*closed, ReopenTopic(topic="u"))

    def _change_scope(self) -> None:
        """Keys have one winner over all partitions for as long as it takes until there is a checkpoint."""
        catalog = self._simulation.components.catalog
        self._commit(Rescope(scope=OF_TOPIC, outputs={"t": 3, "u": 2}))
        while catalog.version % CHECKPOINT_EVERY:
            self._commit(ReopenTopic(topic="u"))
        self._commit(Rescope(scope=OF_PARTITION))

    def change_offsets(self) -> None:
        """A log begins again, and once more with a loss; another gives up offsets; one is restored, a topic renewed."""
        state = self._simulation.components.catalog.state
        renewed = RenewTopic(topic="u", topic_id="id-u", output_id=state.topics["u"].output_id)
        self._commit(Reorder(order=ORDER), Refill(fill=filling.NAME), RestoreLog(log=state.log(T1)), renewed)
        self._commit(Reidentify(identity=state.identity))
        self._carry_over(T2)
        place = PARTITIONS.index(T2)
        self._do(ChangeOffset(place, None), ChangeOffset(place, FIRST_OF_T2), Tick())
        source = self._simulation.source
        published = self._simulation.components.catalog.state.log(U0).published
        self._do(ChangeOffset(PARTITIONS.index(U0), source.ends[U0]))
        source.rows[U0] = [row for row in source.rows[U0] if row["offset"] < published]  # the others were given up

    def _carry_over(self, tp: TopicPartition) -> None:
        """A log begins again with what it keeps, as after a truncate."""
        storage, log = self._simulation.storage, self._simulation.components.catalog.state.log(tp)
        target = RunTarget(storage=storage, prefix=paths.prefix(log.bucket, "generation"), max_bytes=1 << 27)
        rows = [batch for batch in read(storage, whole(log)) if batch["offset"][0].as_py() >= 0]
        start = rows[0]["offset"][0].as_py()
        carried = write_run(rows, target, "generation.carry", start, log.end, self._now)
        assert carried is not None
        begun = Generation(number=generation_of(log) + 1, start=start, first_end=log.end, output_offset=0)
        self._commit(BeginGeneration(topic=tp.topic, partition=tp.partition, generation=begun, carried=carried))

    def end(self) -> None:
        """A publish is broken off inside its fold."""
        self._do(Vacuum(), Advance(1_500), Restart(LAG._replace(most=1)))
        assert not self._simulation.perform(
            FailingPublisher(Tick(), PublishFault(step=PublishStep.SENT, transaction=2))
        )

    def _snapshot_as_text(self) -> None:
        """A snapshot whose keys and values are text; those of u are none."""
        simulation, components = self._simulation, self._simulation.components
        settings = EngineSettings(
            connector=CONNECTOR,
            policy=components.settings.policy,
            snapshot_retention_count=2,
            snapshot_string_columns=frozenset({"key", "value"}),
        )
        quarantine = QuarantineManager(components.catalog, threading.Event())
        uncertain = components.engine.positions.uncertain
        snapshots = Snapshots(
            simulation._spark, components.catalog, quarantine, simulation.broker, settings, simulation.shelf, uncertain
        )
        with suppress(SnapshotError):
            snapshots.take(self._now)

    @property
    def _now(self) -> int:
        return self._simulation.clock.now_ms()

    def _do(self, *all_steps: Any) -> None:
        for step in all_steps:
            assert self._simulation.perform(step), step

    def _commit(self, *actions: AnyAction) -> None:
        self._simulation.components.catalog.commit(lambda _: actions, self._now)

    def _outside(self, topic: str, partitions: int, *, published: bool = True) -> None:
        self._simulation.broker.add_topic(topic, partitions, published=published)

    def _take(self, tp: TopicPartition, *records: Record, lost: int = 0, holes: int = 0) -> None:
        """A micro-batch brings `records`: so many offsets before them are lost, so many behind hold nothing."""
        simulation, source = self._simulation, self._simulation.source
        source.rows.setdefault(tp, [])
        lo = source.ends.setdefault(tp, 0) or (FIRST_OF_T2 if tp == T2 else 0)
        start = lo + lost
        rows = [self._row(tp, offset, *record) for offset, record in enumerate(records, start)]
        hi = start + len(rows) + holes
        if tp.topic not in simulation.broker.topics:
            self._outside(tp.topic, 3 if tp.topic == "t" else 2)
        simulation.broker.topics[tp.topic].ends[tp.partition] = hi
        source.rows[tp] += rows
        source.ends[tp] = hi
        self._batches += 1
        report = range_report(tp.partition, lo, hi, len(rows), start=start, topic=tp.topic)
        intake = simulation.components.engine.intake.of_batch(self._batches, self._now)
        frame: Sequence[Row] = [*(as_read(each, source.compare) for each in rows), report]
        simulation.components.engine.take(gathered(cast("DataFrame", LocalFrame([frame], intake))), self._now)

    def _row(
        self, tp: TopicPartition, offset: int, key: bytes | None, value: bytes | None, more: Row | None = None
    ) -> Row:
        return row(tp.partition, offset, key, value, **{"topic": tp.topic, "timestamp": self._now, **(more or {})})

    def _fold(self, tp: TopicPartition) -> None:
        self._simulation.components.maintenance.cleaner.clean(self._now, [tp])

    @contextmanager
    def _damaged(self, tp: TopicPartition) -> Iterator[None]:
        """Meanwhile the newest file of `tp` is not what was written, which is found out."""
        simulation = self._simulation
        path = simulation.components.catalog.state.log(tp).runs[-1].files[-1].path
        file = Path(simulation.storage.location, path)
        whole = file.read_bytes()
        file.write_bytes(whole[:40] + bytes([whole[40] ^ 255]) + whole[41:])
        yield
        file.write_bytes(whole)
        assert simulation.components.catalog.state.log(tp).quarantine
