from __future__ import annotations

import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from compactor.snapshot.data_files import TABLE
from compactor.snapshot.manifest import Column, DataFile, Manifest, Typed
from compactor.storage.local import LocalStorage
from connectors.bootstrap.changes import Changes
from connectors.bootstrap.freshness import ReadTime
from connectors.bootstrap.records import Change
from connectors.bootstrap.snapshot_files import SnapshotFiles
from connectors.bootstrap.table import Beginning, Table
from connectors.bootstrap.table_state import TableState
from connectors.clock import SYSTEM_CLOCK, SystemClock
from connectors.errors import BootstrapError, ConnectorError, ResumeError, UnreachableError
from tests.support.kafka import wait_until

Living = dict[tuple[int, bytes], bytes]


def _snapshot(folder: Path, living: Living, **changes: Any) -> SnapshotFiles:
    """A snapshot of bytes with these values, in files of some records each."""
    rows = [
        {"key": key, "value": value, "partition": partition, "offset": at, "timestamp": at, "headers": None}
        for at, ((partition, key), value) in enumerate(living.items())
    ]
    files = []
    (folder / "s" / "data").mkdir(parents=True, exist_ok=True)
    for at in range(0, len(rows) or 1, 7):
        name = f"data/{at:05}.parquet"
        part = pa.Table.from_pylist(rows[at : at + 7], TABLE)
        pq.write_table(part, folder / "s" / name, row_group_size=3)
        files.append(DataFile(path=name, bytes=1, sha256="", records=part.num_rows))
    manifest = Manifest(
        connector="c", topic="t", output_topic="o", output_topic_id="O", created_at="", resume_safe_until=None,
        source_offsets={}, output_offsets={}, records=len(rows), tombstones_excluded=0, policy={},
        files=tuple(files), **{"schema": tuple(Column(field.name, str(field.type)) for field in TABLE), **changes},
    )  # fmt: skip
    return SnapshotFiles(LocalStorage(str(folder)), "s", manifest)


def _change(partition: int, key: bytes, value: bytes | None, offset: int = 0, source: int | None = None) -> Change:
    place = {"topic": b"t", "partition": str(source).encode(), "offset": b"1"}
    headers = () if source is None else tuple((f"keyfold.source.{name}", text) for name, text in place.items())
    return Change(partition, offset, offset, key, value, headers)


def _content(state: TableState) -> Living:
    records = list(state)
    assert len(records) == len(state)
    return {(record.partition or 0, record.key): record.value or b"" for record in records}


@pytest.mark.parametrize("seed", range(20))
def test_a_table_is_what_a_dict_would_be(tmp_path: Path, seed: int) -> None:
    """Whatever is replaced and deleted, of keys of the snapshot and new ones, in partitions of it and new ones."""
    chosen = random.Random(seed)
    keys = [f"k{number}".encode() for number in range(12)]
    expected = {(chosen.randrange(2), key): b"old" for key in chosen.sample(keys, chosen.randrange(12))}
    state = TableState(_snapshot(tmp_path, expected))
    assert _content(state) == expected
    for offset in range(60):
        partition, key = chosen.randrange(3), chosen.choice(keys)
        value = chosen.choice([None, b"%d" % offset])
        state.apply([_change(partition, key, value, offset)])
        expected.pop((partition, key), None)
        if value is not None:
            expected[partition, key] = value
        assert _content(state) == expected
        for each in keys:
            there = {number for number, name in expected if name == each}
            record = state.get(each)
            assert (record is None) == (not there)
            assert record is None or expected[record.partition or 0, each] == record.value


def test_of_several_partitions_the_latest_time_counts(tmp_path: Path) -> None:
    """Then the last partition."""
    state = TableState(_snapshot(tmp_path, {(0, b"k"): b"0", (1, b"k"): b"1"}))
    assert (record := state.get(b"k")) is not None
    assert record.value == b"1"
    state.apply([_change(0, b"k", b"later", offset=9)])
    assert (record := state.get(b"k")) is not None
    assert (record.value, len(state)) == (b"later", 2)


def test_a_key_of_a_whole_topic_is_there_once(tmp_path: Path) -> None:
    """With compaction.scope=topic the output's partition is not the source's, and a key may come from another one."""
    state = TableState(_snapshot(tmp_path, {(0, b"k"): b"0"}, scope="topic"))
    state.apply([_change(5, b"k", b"1", source=1)])
    assert _content(state) == {(1, b"k"): b"1"}
    state.apply([_change(5, b"k", None)])
    assert _content(state) == {}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"snapshot_mode": "append"}, "has every record"),
        ({"schema": (Column("_partition", "int32"),), "typed": ("typed", "bytes")}, "has no column _key"),
        ({"schema": (Column("_key", "binary"),), "typed": ("typed", "bytes")}, "has no column _partition"),
    ],
)
def test_a_table_needs_keys_as_changes_have_them(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    """The error says what to set."""
    if forms := changes.get("typed"):
        value, key = forms
        changes = {**changes, "typed": Typed(value_format=value, key_format=key, metadata_columns=(), settings="")}
    with pytest.raises(BootstrapError, match=said):
        TableState(_snapshot(tmp_path, {}, **changes))


class _Feed:
    """What `Changes` gives a table: polls from a list, the last one again and again; errors are raised."""

    def __init__(self, *polls: list[Change] | Exception) -> None:
        self.polls = list(polls)
        self.current: ReadTime | None = None
        self.closed = threading.Event()

    def poll(self, timeout_s: float) -> list[Change]:
        self.closed.wait(0.001)
        polled = self.polls.pop(0) if self.polls else []
        if isinstance(polled, Exception):
            raise polled
        if not self.polls:
            self.current = ReadTime(SYSTEM_CLOCK.now_ms(), SYSTEM_CLOCK.monotonic_ms())
        return polled

    def ask_soon(self) -> None: ...

    def close(self) -> None:
        self.closed.set()


class _Quick(SystemClock):
    """Notes how long it is to wait, and hardly waits."""

    def __init__(self) -> None:
        self.waits: list[int] = []

    def wait_ms(self, ms: int, event: threading.Event) -> bool:
        self.waits.append(ms)
        return super().wait_ms(1, event)


@pytest.fixture
def begin(tmp_path: Path) -> Callable[..., Callable[[], Beginning]]:
    """Makes what a table begins with, time after time: the snapshot's id, its value of k, and its feed."""

    def made(*beginnings: tuple[str, bytes, _Feed] | Exception) -> Callable[[], Beginning]:
        waiting = iter(beginnings)

        def next_one() -> Beginning:
            given = next(waiting)
            if isinstance(given, Exception):
                raise given
            name, value, feed = given
            state = TableState(_snapshot(tmp_path / name, {(0, b"k"): value}))
            return Beginning(name, state, cast("Changes", feed))

        return next_one

    return made


def test_a_table_is_ready_when_it_has_what_is_there(begin: Callable[..., Callable[[], Beginning]]) -> None:
    """Entering it waits for the end of the output; it is a container of records by key."""
    feed = _Feed([_change(0, b"k", b"1")], [_change(0, b"n", b"2")])
    with Table(begin(("first", b"0", feed))) as table:
        assert (table[b"k"].value, table[b"n"].value, len(table)) == (b"1", b"2", 2)
        assert b"x" not in table
        assert table.get(b"x") is None
        with pytest.raises(KeyError):
            table[b"x"]
        assert 0 <= (table.freshness() or 0) < 60
    assert feed.closed.is_set()


def test_a_table_begins_again_with_a_newer_snapshot(begin: Callable[..., Callable[[], Beginning]]) -> None:
    """Its readers see nothing of it, nor of an outage meanwhile."""
    first, second = _Feed([], ResumeError("Too old.")), _Feed([_change(0, b"n", b"1")])
    beginnings = begin(("first", b"0", first), UnreachableError("Away."), ("second", b"1", second))
    with Table(beginnings) as table:
        wait_until(lambda: table.snapshot == "second", "it begins again")
        table.catch_up(10)
        assert (table[b"k"].value, len(table)) == (b"1", 2)
    assert first.closed.is_set()


def test_an_outage_does_not_end_a_table(begin: Callable[..., Callable[[], Beginning]]) -> None:
    """It is read as it is meanwhile, and goes on with what comes afterwards."""
    feed, clock = _Feed(), _Quick()
    with Table(begin(("first", b"0", feed)), clock=clock) as table:
        feed.polls += [UnreachableError("Away."), UnreachableError("Away."), [_change(0, b"k", b"1")]]
        wait_until(lambda: table[b"k"].value == b"1", "it goes on")
    assert clock.waits == [1_000, 1_000]


@pytest.mark.parametrize("ended", ["same snapshot", "other error"])
def test_what_ends_a_table_is_raised_by_every_read(begin: Callable[..., Callable[[], Beginning]], ended: str) -> None:
    """A table does not go on with what is old: without a newer snapshot, and on any other error."""
    error = ResumeError("Too old.", "Snapshot.") if ended == "same snapshot" else ConnectorError("Deleted.")
    feed = _Feed()
    with Table(begin(("first", b"0", feed), ("first", b"0", _Feed()))) as table:
        assert len(table) == 1
        feed.polls.append(error)
        wait_until(lambda: _raises(table.freshness, type(error)), "it is raised")
        reads = [lambda: table[b"k"], lambda: len(table), lambda: list(table), lambda: table.catch_up(1)]
        assert all(_raises(read, type(error)) for read in reads)


def _raises(read: Callable[[], object], kind: type[Exception]) -> bool:
    try:
        read()
    except kind:
        return True
    return False


def test_a_table_that_does_not_get_ready_says_so(begin: Callable[..., Callable[[], Beginning]]) -> None:
    """Its connections are closed then."""
    feed = _Feed(*([[]] * 100_000))
    with pytest.raises(UnreachableError, match="did not reach the end"), Table(begin(("first", b"0", feed)), 0.05):
        pass
    assert feed.closed.is_set()
