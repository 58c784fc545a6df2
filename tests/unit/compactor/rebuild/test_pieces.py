"""What output partitions have of each log becomes one run, by offset."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compactor.model import record
from compactor.model.record import TopicPartition
from compactor.rebuild.pieces import Pieces, merged
from compactor.runs.reader import read
from compactor.runs.scan import OffsetRange
from compactor.runs.writer import RunTarget
from tests.support.memory.storage import MemoryStorage


def rows(*places: tuple[int, int]) -> pa.RecordBatch:
    """Returns a record at each partition and offset."""
    plain = dict.fromkeys(record.RUN.names)
    made = [
        plain
        | {
            "topic": "t",
            "partition": number,
            "offset": offset,
            "timestamp": 1,
            "timestamp_type": 0,
            "key": b"%d" % offset,
        }
        for number, offset in places
    ]
    return pa.RecordBatch.from_pylist(made, schema=record.RUN)


@pytest.mark.parametrize(
    "outputs",
    [
        pytest.param([[(0, 1), (1, 0), (0, 5)], [(0, 3), (1, 2)], [(0, 4), (0, 9)]], id="logs in several outputs"),
        pytest.param([[(0, 1), (0, 3), (0, 4), (0, 5), (0, 9)], [(1, 0), (1, 2)]], id="each in its own"),
    ],
)
def test_a_log_has_one_run_of_all_output_partitions(outputs: Sequence[Sequence[tuple[int, int]]]) -> None:
    """Each is read once for all logs; a log with a single piece has that, and is not written again."""
    storage = MemoryStorage()
    pieces = Pieces(RunTarget(storage=storage, prefix="1-rebuild", max_bytes=1 << 20, arrived_ms=7))
    for places in outputs:
        pieces.add(iter([rows(*places)]))
    for number, expected in ((0, [1, 3, 4, 5, 9]), (1, [0, 2])):
        tp = TopicPartition("t", number)
        run = pieces.run(tp, 0, 10, 7)
        assert run is not None
        kept = read(storage, OffsetRange(tp=tp, start=0, end=10, runs=(run,)))
        assert [offset for batch in kept for offset in batch["offset"].to_pylist()] == expected
        assert (run.start, run.end, run.records, run.folded) == (0, 10, len(expected), True)
    assert pieces.run(TopicPartition("t", 2), 0, 10, 7) is None
    written_again = 2 if len(outputs) > 2 else 0
    assert len(storage.list("runs")) == len(outputs) + written_again


def test_records_of_earlier_generations_lead_a_log() -> None:
    """They come by the output's order, in which their offsets fall; the run ends at the start of the generation."""
    storage = MemoryStorage()
    pieces = Pieces(RunTarget(storage=storage, prefix="1-rebuild", max_bytes=1 << 20, arrived_ms=7))
    pieces.add_earlier(iter([rows((0, -2), (0, -5)), rows((0, -6), (0, -9))]))
    tp = TopicPartition("t", 0)
    lead = pieces.lead(tp, 3, 7)
    assert lead is not None
    kept = read(storage, OffsetRange(tp=tp, start=-9, end=3, runs=(lead,)))
    assert [offset for batch in kept for offset in batch["offset"].to_pylist()] == [-9, -6, -5, -2]
    assert (lead.start, lead.end, lead.records, lead.folded) == (-9, 3, 4, True)
    assert pieces.lead(TopicPartition("t", 1), 3, 7) is None


def lower_case(made: pa.RecordBatch, keys: Sequence[bytes], values: Sequence[bytes | None]) -> pa.RecordBatch:
    """Returns records with these keys, which are compared in lower case, and values."""
    columns = {"key": keys, "key_identity": [key.lower() for key in keys], "value": values}
    for name, column in columns.items():
        made = made.set_column(made.schema.get_field_index(name), name, pa.array(column, pa.binary()))
    return made


def of_identities(*, earlier: bool = False) -> tuple[MemoryStorage, Pieces]:
    """Returns pieces of two output partitions: key a is deleted in the first, and lives as A in the second."""
    storage = MemoryStorage()
    target = RunTarget(storage=storage, prefix="1-rebuild", max_bytes=1 << 20, arrived_ms=7)
    pieces = Pieces(target, holds_tombstones=True)
    pieces.add(iter([lower_case(rows((0, 1), (0, 2), (0, 5)), (b"a", b"b", b"c"), (None, None, b"1"))]))
    if earlier:
        pieces.add(iter([lower_case(rows((1, 3)), (b"D",), (None,))]))
        pieces.add_earlier(iter([lower_case(rows((1, -3)), (b"A",), (b"1",))]))
    else:
        pieces.add(iter([lower_case(rows((0, 3), (1, 4)), (b"D", b"A"), (None, b"1"))]))
    return storage, pieces


def kept_offsets(storage: MemoryStorage, pieces: Pieces, number: int) -> list[int]:
    """Returns the offsets of the records that the log of a partition gets."""
    tp = TopicPartition("t", number)
    runs = [run for run in (pieces.lead(tp, 0, 7), pieces.run(tp, 0, 10, 7)) if run is not None]
    kept = (read(storage, OffsetRange(tp=tp, start=run.start, end=run.end, runs=(run,))) for run in runs)
    return [offset for batches in kept for batch in batches for offset in batch["offset"].to_pylist()]


def test_a_tombstone_of_a_key_that_lives_in_other_bytes_is_left_out() -> None:
    """Other tombstones are not, in whatever output partition they are; each log has its records by offset."""
    storage, pieces = of_identities()
    pieces.settle()
    assert [kept_offsets(storage, pieces, number) for number in (0, 1)] == [[2, 3, 5], [4]]


def test_a_key_that_lives_by_an_earlier_generation_lives() -> None:
    """Readers have it, so its tombstone in other bytes is left out, too."""
    storage, pieces = of_identities(earlier=True)
    pieces.settle()
    assert [kept_offsets(storage, pieces, number) for number in (0, 1)] == [[2, 5], [-3, 3]]


def test_tombstones_stay_if_keys_are_compared_by_their_bytes() -> None:
    """They are the last of their keys, so none of these lives; nothing waits, and one file is written."""
    storage = MemoryStorage()
    pieces = Pieces(RunTarget(storage=storage, prefix="1-rebuild", max_bytes=1 << 20, arrived_ms=7))
    pieces.add(iter([rows((0, 1), (0, 2))]))
    pieces.settle()
    assert kept_offsets(storage, pieces, 0) == [1, 2]
    assert len(storage.list("runs")) == 1


@given(st.lists(st.lists(st.integers(0, 3), max_size=4), max_size=4), st.randoms())
def test_streams_are_merged_by_offset(shape: list[list[int]], chance: Random) -> None:
    """Whatever batches they come in, also empty ones at the end of a stream."""
    count = sum(map(sum, shape))
    offsets = iter(chance.sample(range(count), count))
    streams = []
    for sizes in shape:
        own = iter(sorted(next(offsets) for _ in range(sum(sizes))))
        streams.append(iter([rows(*((0, next(own)) for _ in range(size))) for size in sizes if size]))
    found = [offset for batch in merged(streams) for offset in batch["offset"].to_pylist()]
    assert found == list(range(count))
