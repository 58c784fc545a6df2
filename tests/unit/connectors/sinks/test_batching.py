"""How a publish task's stream is cut into batches and transactions, and a refused transaction into smaller ones."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from compactor.model.record import TopicPartition, measure, sizes
from connectors.errors import UnreachableError
from connectors.sinks.batching import PartitionBatch, partition_batches, produce_groups, transactions
from connectors.sinks.refused_records import REQUEST_BYTES, explained, send_all, smaller
from connectors.sinks.settings import TransactionLimits
from connectors.sinks.transaction import Refused
from tests.support.publishing import RunRecord, batch

PARTITIONS = [TopicPartition("t", number) for number in range(3)]


def offsets(found: Sequence[PartitionBatch]) -> list[tuple[int, int]]:
    return [(one.tp.partition, at) for one in found for at in one.rows["offset"].to_pylist()]


records = st.lists(
    st.tuples(st.integers(0, 2), st.binary(max_size=20), st.lists(st.binary(max_size=9), max_size=2)), max_size=60
)


def run(found: list[tuple[int, bytes, list[bytes]]]) -> pa.RecordBatch:
    ordered = sorted(found, key=lambda one: one[0])
    return batch(
        "t",
        [
            RunRecord(at, value=value, partition=number, headers=[("h", one) for one in headers])
            for at, (number, value, headers) in enumerate(ordered)
        ],
    )


@settings(max_examples=60)
@given(records, st.integers(1, 60), st.integers(1, 7), st.integers(1, 20))
def test_batches_are_the_stream(found: list[tuple[int, bytes, list[bytes]]], size: int, rows: int, cut: int) -> None:
    """However batches and limits fall: all records in order, one partition a batch, limits kept, one last each."""
    whole = run(found)
    batches = [whole.slice(at, cut) for at in range(0, whole.num_rows, cut)]
    got = list(partition_batches(batches, PARTITIONS, TransactionLimits(transaction_bytes=size, batch_records=rows)))
    expected = list(zip(whole["partition"].to_pylist(), whole["offset"].to_pylist(), strict=True))
    assert offsets(got) == expected
    assert all(one.records <= rows and (one.bytes <= size or one.records == 1) for one in got)
    assert all(one.bytes == (measure(one.rows) if one.records else 0) for one in got)
    assert sorted(one.tp for one in got if one.last) == PARTITIONS


@settings(max_examples=40)
@given(records, st.integers(1, 100))
def test_transactions_keep_to_their_size(found: list[tuple[int, bytes, list[bytes]]], size: int) -> None:
    """A transaction holds what fits; only a single batch may be larger."""
    cut = list(partition_batches([run(found)], PARTITIONS, TransactionLimits(batch_records=3)))
    got = list(transactions(cut, size))
    assert [one for group in got for one in group] == cut
    assert all(len(group) == 1 or sum(one.bytes for one in group) <= size for group in got)


@settings(max_examples=40)
@given(records, st.integers(1, 9))
def test_so_much_is_encoded_together(found: list[tuple[int, bytes, list[bytes]]], most: int) -> None:
    """So many records at most, of any topics, in their order."""
    cut = list(partition_batches([run(found)], PARTITIONS, TransactionLimits(batch_records=3)))
    cut += [replace(one, tp=TopicPartition("u", one.tp.partition)) for one in cut if one.records]
    got = list(produce_groups(cut, most))
    assert [one for group in got for one in group] == cut
    assert all(len(group) == 1 or sum(one.records for one in group) <= most for group in got)


def test_bytes_of_rows_count_what_the_measure_counts() -> None:
    """Key, value and headers, with nulls and slices; their sum is record.measure."""
    found = batch(
        "t",
        [
            RunRecord(0, b"abc", None, None),
            RunRecord(1, None, b"12345", (("h", b"xy"), ("i", None))),
            RunRecord(2, b"", b"", ()),
            RunRecord(3, b"k", b"v", (("long", b""),)),
        ],
    )
    assert sizes(found).tolist() == [3, 9, 0, 6]
    assert sizes(found.slice(1, 2)).tolist() == [9, 0]


@settings(max_examples=60)
@given(
    records.filter(bool),
    st.sets(st.integers(0, 59), max_size=4),
    st.integers(1, 5),
    st.integers(1, 4),
)
def test_isolating_a_refused_record_sends_every_other(
    found: list[tuple[int, bytes, list[bytes]]], poison: set[int], rows: int, at_once: int
) -> None:
    """Whichever records are refused and however many batches a transaction takes: the rest goes once, in order."""
    let_go: set[int] = set()
    sent: list[PartitionBatch] = []
    reopened = 0

    def send(group: Sequence[PartitionBatch]) -> int:
        now = list(group[:at_once])
        if any(at in poison - let_go for _, at in offsets(now)):
            raise Refused("too large")
        sent.extend(now)
        return len(now)

    def single(one: PartitionBatch, refusal: Refused) -> None:
        assert (one.records, refusal.reason) == (1, "too large")
        let_go.add(one.next_offset - 1)

    def reopen() -> None:
        nonlocal reopened
        reopened += 1

    whole = run(found)
    send_all(list(partition_batches([whole], PARTITIONS, TransactionLimits(batch_records=rows))), send, single, reopen)
    expected = list(zip(whole["partition"].to_pylist(), whole["offset"].to_pylist(), strict=True))
    assert sorted(offsets(sent)) == sorted(expected)
    assert sorted(one.tp for one in sent if one.last) == PARTITIONS
    for tp in PARTITIONS:
        own = [one for one in sent if one.tp == tp]
        assert offsets(own) == sorted(offsets(own))
        assert own[-1].last
    assert let_go == poison & set(range(whole.num_rows))
    assert (reopened > 0) == bool(let_go)


@pytest.mark.parametrize(
    ("group", "parts"),
    [
        ([(0, 4)], [[(0, 2)], [(0, 2)]]),
        ([(0, 1)], [[(0, 1)]]),
        ([(0, 2), (0, 2), (0, 2)], [[(0, 2)], [(0, 2), (0, 2)]]),
        ([(0, 2), (1, 1), (1, 3)], [[(0, 2)], [(1, 1), (1, 3)]]),
        ([(0, 1), (1, 0), (2, 0)], [[(0, 1)], [(1, 0), (2, 0)]]),
    ],
)
def test_a_refused_load_falls_into_partitions_and_then_halves(
    group: list[tuple[int, int]], parts: list[list[tuple[int, int]]]
) -> None:
    """One transaction per partition first, then halves; ends without records go together."""
    found = [
        PartitionBatch(
            tp=PARTITIONS[number], rows=batch("t", [RunRecord(at) for at in range(count)]), bytes=2 * count, last=True
        )
        for number, count in group
    ]
    assert [[(one.tp.partition, one.records) for one in part] for part in smaller(found)] == parts


def test_the_largest_record_of_a_piece_is_told_where_it_matters() -> None:
    """Key, value and headers; 0 where none is above the bound, also where all together are."""
    rows = [RunRecord(0, b"k", b"v" * 50, [("h", b"xy")]), RunRecord(1, b"kk", b"v" * 20), RunRecord(2, b"k", None)]
    (one,) = partition_batches([batch("t", rows)], PARTITIONS[:1], TransactionLimits())
    assert [one.largest(bound) for bound in (0, 53, 54, 60, 99)] == [54, 54, 0, 0, 0]
    (silent,) = partition_batches([], PARTITIONS[:1], TransactionLimits())
    assert silent.largest(0) == 0


def test_a_brokers_hanging_up_is_explained_by_what_was_large() -> None:
    """Which record it may have been, its size, and the brokers' setting; nothing where no record is so large."""
    error = UnreachableError("No answer.", "Look.")
    small, large = (
        next(partition_batches([batch("t", [RunRecord(7, b"k", bytes(size))])], [], TransactionLimits()))
        for size in (9, REQUEST_BYTES)
    )
    assert explained(error, [small]) is error
    told = str(explained(error, [small, large]))
    assert "t-0 below offset 8 with 104,857,601 bytes" in told
    assert "socket.request.max.bytes" in told
    assert told.startswith("No answer.")
