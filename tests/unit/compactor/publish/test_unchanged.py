"""Records that change nothing are left out, if it is known that the output has an equal one of their key."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from compactor.fold.memory_budget import TOGETHER
from compactor.model.actions import Publish, Skip
from compactor.model.publish_plan import PublishResult, PublishTarget
from compactor.model.record import RUN, TopicPartition
from compactor.model.state import CatalogState, apply
from compactor.publish.unchanged import KnownRecords, known_ranges, sent_offsets
from compactor.runs.scan import whole
from compactor.storage.local import LocalStorage
from tests.support.engine import Row, ingested, log_of, new_state, row, with_range_reports

TP = TopicPartition("t", 0)
NO = UNSET


@pytest.fixture
def storage(tmp_path: Path) -> LocalStorage:
    return LocalStorage(str(tmp_path))


def kept(storage: LocalStorage, *batches: Sequence[Row]) -> CatalogState:
    """Returns the state of a connector that has ingested these micro-batches, each with an index, and sent them."""
    state, end = new_state({0: 0}), 0
    for rows in batches:
        last = rows[-1]["offset"] + 1
        state = ingested(storage, state, [with_range_reports(rows, {0: (end, last)})], is_indexed=True)
        end = last
    return apply(state, [Publish(topic="t", partition=0, end=end, sent_from=0)])


def known(storage: LocalStorage, state: CatalogState) -> KnownRecords:
    return KnownRecords(storage, {TP: whole(log_of(state))})


def survivors(*rows: Row) -> pa.RecordBatch:
    """Returns what a fold has left, as a publish task gets it."""
    return pa.RecordBatch.from_pylist([{"delete_horizon": None, "rejected": None, **each} for each in rows], schema=RUN)


def left(records: KnownRecords, *rows: Row) -> list[int]:
    """Returns the offsets of those of `rows` that are sent; what is left out is counted."""
    unchanged: Counter[TopicPartition] = Counter()
    batches = records.changed(iter([survivors(*rows)]), unchanged)
    sent = [offset for batch in batches for offset in batch["offset"].to_pylist()]
    assert unchanged.total() == len(rows) - len(sent)
    return sent


def headers(*pairs: tuple[str, bytes | None]) -> list[dict[str, object]]:
    return [{"key": name, "value": value} for name, value in pairs]


PLAIN = row(0, 0, b"k", b"v")
WITH = row(0, 0, b"k", b"v", headers=headers(("a", b"1"), ("b", None)))
UPSTREAM = row(0, 0, b"k", b"v", headers=headers(("keyfold.source.offset", b"7"), ("a", b"1")))
TOMBSTONE = row(0, 0, b"k", None)


@pytest.mark.parametrize(
    ("before", "after", "is_sent"),
    [
        pytest.param(PLAIN, {}, False, id="equal"),
        pytest.param(PLAIN, {"timestamp": 99}, False, id="another time says nothing else"),
        pytest.param(PLAIN, {"value": b"w"}, True, id="another value"),
        pytest.param(PLAIN, {"value": b""}, True, id="an empty value"),
        pytest.param(PLAIN, {"value": None}, True, id="a tombstone for a value"),
        pytest.param(TOMBSTONE, {}, False, id="a tombstone again"),
        pytest.param(TOMBSTONE, {"value": b""}, True, id="a value for a tombstone"),
        pytest.param(PLAIN, {"headers": headers(("a", b"1"))}, True, id="a header more"),
        pytest.param(PLAIN, {"headers": None}, False, id="no headers, told in another way"),
        pytest.param(WITH, {}, False, id="equal headers"),
        pytest.param(WITH, {"headers": headers(("a", b"1"))}, True, id="a header less"),
        pytest.param(WITH, {"headers": headers(("b", None), ("a", b"1"))}, True, id="headers in another order"),
        pytest.param(WITH, {"headers": headers(("a", b"1"), ("b", b""))}, True, id="a header's empty value for none"),
        pytest.param(WITH, {"headers": headers(("a", b"1"), ("c", None))}, True, id="another name"),
        pytest.param(UPSTREAM, {"headers": headers(("a", b"1"))}, False, id="headers that are not published"),
        pytest.param(PLAIN, {"key": b"K"}, True, id="another key"),
        pytest.param(PLAIN, {"key": b"K", "key_identity": b"k"}, True, id="other bytes of the same key"),
        pytest.param(PLAIN, {"rejected": "no JSON"}, True, id="a record that was rejected"),
    ],
)  # fmt: skip
def test_what_a_reader_could_tell_from_the_record_before_is_sent(
    storage: LocalStorage, before: Row, after: Row, is_sent: bool
) -> None:
    """Key, value and headers, byte for byte; neither offset nor time."""
    records = known(storage, kept(storage, [before]))
    assert left(records, {**before, "offset": 5, **after}) == ([5] if is_sent else [])


def test_many_records_are_compared_at_once(storage: LocalStorage) -> None:
    """Each with its own key's latest record, of whichever run; headers stay with their rows, batches in their order."""
    many = [row(0, at, b"%d" % at, b"v%d" % at, headers=headers(*[("h", b"%d" % at)] * (at % 3))) for at in range(300)]
    newer = [{**each, "offset": 300 + at, "value": b"new"} for at, each in enumerate(many[:50])]
    records = known(storage, kept(storage, many, newer))
    again = [{**each, "offset": 400 + at} for at, each in enumerate(many)]
    assert left(records, *again) == list(range(400, 450))
    odd = [{**each, "headers": headers(("h", b"x"))} if each["offset"] % 7 == 0 else each for each in again]
    assert left(records, *odd) == [at for at in range(400, 700) if at < 450 or at % 7 == 0]
    two = replace(records, together=replace(TOGETHER, records=1))
    batches = [survivors(each) for each in again[49:52]]
    assert [batch["offset"].to_pylist() for batch in two.changed(iter(batches), Counter())] == [[449]]


def without_index(state: CatalogState, run: int) -> CatalogState:
    """Returns `state` as if the files of a run were written without an index."""
    log = log_of(state)
    runs = list(log.runs)
    runs[run] = replace(runs[run], files=tuple(replace(file, index=None) for file in runs[run].files))
    return replace(state, logs=(replace(log, runs=tuple(runs)),))


def test_a_run_without_an_index_says_nothing_of_what_is_older(storage: LocalStorage) -> None:
    """It may have a later record of the key: what is in newer runs is compared, all else is sent."""
    state = kept(storage, [row(0, 0, b"a", b"1")], [row(0, 1, b"a", b"2")], [row(0, 2, b"b", b"1")])
    again = [row(0, 5, b"a", b"1"), row(0, 6, b"b", b"1")]
    assert left(known(storage, state), *again) == [5]
    assert left(known(storage, without_index(state, 1)), *again) == [5]
    assert left(known(storage, without_index(state, 2)), *again) == [5, 6]


def damage(storage: LocalStorage, path: str) -> None:
    file = Path(storage.location, path)
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 255
    file.write_bytes(data)


@pytest.mark.parametrize("way", ["lost", "damaged"])
@pytest.mark.parametrize("kind", ["index", "records"])
def test_what_cannot_be_read_is_not_compared(storage: LocalStorage, kind: str, way: str) -> None:
    """A record is sent rather than left out by a file that is not what was written."""
    state = kept(storage, [row(0, at, b"%d" % at, b"v") for at in range(100)])
    (file,) = log_of(state).runs[0].files
    path = file.index_path if kind == "index" else file.path
    assert path is not None
    Path(storage.location, path).unlink() if way == "lost" else damage(storage, path)
    assert left(known(storage, state), row(0, 200, b"50", b"v")) == [200]


def target(start: int, end: int, output: str | None = "out") -> PublishTarget:
    return PublishTarget(topic="t", partition=0, bucket=0, output=output, start=start, end=end)


def log(published: int, sent_from: int | UnsetType, state: CatalogState) -> CatalogState:
    changed = replace(log_of(state), published=published, folded_end=published, sent_from=sent_from)
    return replace(state, logs=(changed,))


@pytest.mark.parametrize(
    ("sent_from", "asked", "expected"),
    [
        pytest.param(0, target(3, 6), (0, 3), id="all that was sent"),
        pytest.param(2, target(3, 6), (2, 3), id="from where it is known"),
        pytest.param(NO, target(3, 6), None, id="nothing is known"),
        pytest.param(3, target(3, 6), None, id="nothing was sent since"),
        pytest.param(0, target(4, 6), None, id="a fold that goes on: what it superseded was never sent"),
        pytest.param(0, target(3, 3), None, id="a position alone"),
        pytest.param(0, target(3, 6, output=None), None, id="no output"),
    ],
)
def test_records_are_compared_with_what_is_known_to_be_sent(
    storage: LocalStorage, sent_from: int | UnsetType, asked: PublishTarget, expected: tuple[int, int] | None
) -> None:
    """Never with what is kept and not published yet."""
    state = log(3, sent_from, kept(storage, [row(0, at, b"%d" % at, b"v") for at in range(6)]))
    ranges = {tp: (known.start, known.end) for tp, known in known_ranges(state, [asked]).items()}
    assert ranges == ({} if expected is None else {TP: expected})


@pytest.mark.parametrize(
    ("sent_from", "asked", "refused", "expected"),
    [
        pytest.param(NO, target(3, 6), 0, 3, id="the first that is sent so"),
        pytest.param(1, target(3, 6), 0, 1, id="another"),
        pytest.param(1, target(3, 3), 0, 1, id="a position that is committed again"),
        pytest.param(1, target(3, 6), 1, NO, id="no reader has what the broker refused"),
        pytest.param(1, target(4, 6), 0, NO, id="what was sent before it is not known"),
        pytest.param(1, target(3, 6, output=None), 0, NO, id="no output"),
    ],
)
def test_what_a_publish_makes_known(
    storage: LocalStorage, sent_from: int | UnsetType, asked: PublishTarget, refused: int, expected: int | UnsetType
) -> None:
    """All that it sent, if it began at what was published and nothing was refused."""
    state = log(3, sent_from, kept(storage, [row(0, at, b"%d" % at, b"v") for at in range(6)]))
    result = PublishResult(topic="t", partition=0, end=asked.end, refused=refused)
    assert sent_offsets(state, [asked], [result]) == {TP: expected}


def test_what_is_not_said_of_a_publish_is_not_known(storage: LocalStorage) -> None:
    """Neither of one that a catalog has missed, nor of one without the setting; a gap leaves nothing either."""
    state = kept(storage, [row(0, at, b"%d" % at, b"v") for at in range(6)])
    assert log_of(state).sent_from == 0
    for action in (Publish(topic="t", partition=0, end=6), Skip(topic="t", partition=0, end=9)):
        assert log_of(apply(state, [action])).sent_from is UNSET


def test_files_without_the_setting_are_as_before() -> None:
    """No byte of a catalog tells of it."""
    written = msgspec.json.encode((Publish(topic="t", partition=0, end=6), log_of(new_state({0: 0}))))
    assert b"sent_from" not in written
