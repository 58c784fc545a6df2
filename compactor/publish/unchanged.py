"""Leaves out records that change nothing (publish.unchanged=skip): a reader of the output has an equal one of the key.

What a reader has is known from the log: the latest record of the key below `published`, found by the index. The log
says so only from `PartitionLog.sent_from` on. Whatever is not known is sent: a record too many changes no reader's
table.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import structlog
from msgspec import UNSET, Struct, UnsetType
from numpy.typing import NDArray

from compactor.errors import DamagedFileError, MissingFileError
from compactor.failpoints import hit
from compactor.fold.latest_per_key import is_foldable
from compactor.fold.memory_budget import TOGETHER, MemoryBudget, gathered
from compactor.index.reader import NO_OFFSET
from compactor.lookup.latest import VERIFIED, indexed_offsets, within
from compactor.lookup.records_at import read_offsets
from compactor.lookup.topic_logs import TopicLogs
from compactor.model.log import PartitionLog, below
from compactor.model.publish_plan import PublishResult, PublishTarget
from compactor.model.record import OWN_HEADERS, TopicPartition, as_compared, partition_spans
from compactor.model.state import CatalogState
from compactor.runs.scan import OffsetRange, between
from compactor.storage.base import Storage

_log = structlog.get_logger()

Mask = NDArray[np.bool_]


def known_ranges(state: CatalogState, targets: Iterable[PublishTarget]) -> dict[TopicPartition, OffsetRange]:
    """Returns for each target the offsets of its log of which it is known that a reader has what is kept of them.

    A target is left out if there are none. So is one that does not start at `published`: what lies between may be
    superseded by the very fold that goes on, and a catalog that was set back does not know of it.
    """
    logs, ranges = state.by_partition(), {}
    for target in targets:
        log = logs[target.tp]
        first = log.sent_from
        is_due = state.is_of_topics or target.start < target.end  # a record is compared with those of all logs
        if first is UNSET or target.output is None or target.start != log.published or not is_due:
            continue
        if (first := max(first, log.start)) < log.published:
            ranges[target.tp] = between(log, first, log.published)
    return ranges


def sent_offsets(
    state: CatalogState, targets: Iterable[PublishTarget], sent: Iterable[PublishResult]
) -> dict[TopicPartition, int | UnsetType]:
    """Returns what `PartitionLog.sent_from` of each log becomes once its target was `sent`; `state` is from before.

    Unset after a record that the broker refused, as no reader has it; and after a publish that went on inside a fold,
    as what was sent before it is not known.
    """
    logs, asked = state.by_partition(), {target.tp: target for target in targets}
    return {result.tp: _sent_from(logs[result.tp], asked[result.tp], result) for result in sent}


def published_logs_of(storage: Storage, state: CatalogState, targets: Iterable[PublishTarget]) -> TopicLogs:
    """Returns the logs of the topics of `targets` up to `published` (scope=topic).

    A reader has the winner of a key among them if it lies at or above its log's `sent_from`. The plan that has passed
    it over, or sent it, was carried out as a whole: otherwise the catalog has learned of it by positions, and the logs
    that it has moved have no `sent_from`. So what beat a record that was passed over lies below `published` as well.
    """
    names = sorted({target.topic for target in targets})
    logs = {name: tuple(below(log, log.published) for log in state.logs_of(name)) for name in names}
    return TopicLogs(storage=storage, order=state.record_order, logs=logs)


def _sent_from(log: PartitionLog, target: PublishTarget, result: PublishResult) -> int | UnsetType:
    if result.refused or target.output is None or target.start != log.published:
        return UNSET
    return target.start if log.sent_from is UNSET else log.sent_from


class KnownRecords(Struct, frozen=True):
    """Compares records with what is kept of their keys in `ranges` of `storage`, by partition; pickled into tasks.

    As many records as fit `together`, in Arrow bytes, are looked up at once. If `topics` has a topic, its records are
    compared with the best of their key of all its logs; that has to lie in the range of its own log.
    """

    storage: Storage
    ranges: Mapping[TopicPartition, OffsetRange]
    together: MemoryBudget = TOGETHER
    topics: TopicLogs | None = None

    def changed(
        self, records: Iterator[pa.RecordBatch], unchanged: Counter[TopicPartition]
    ) -> Iterator[pa.RecordBatch]:
        """Yields `records` (record.RUN, by partition and offset) without those that change nothing.

        Adds to `unchanged` how many are left out. Raises StorageError if the store does not answer.
        """
        if not self.ranges:
            yield from records
            return
        for batches in gathered(records, self.together):
            yield from self._changed(batches, unchanged)

    def _changed(self, batches: list[pa.RecordBatch], unchanged: Counter[TopicPartition]) -> Iterator[pa.RecordBatch]:
        rows = pa.concat_batches(batches)
        stays = np.ones(rows.num_rows, np.bool_)
        for tp, start, end in partition_spans(rows):
            if self.topics is not None:
                equal = self._equal_of_topic(self.topics, tp.topic, rows.slice(start, end - start))
            elif tp in self.ranges:
                equal = _equal_to_known(self.storage, self.ranges[tp], rows.slice(start, end - start))
            else:
                continue
            stays[start:end] = ~equal
            unchanged[tp] += int(equal.sum())
        if stays.all():
            yield from batches
            return
        hit("publish.unchanged")
        at = 0
        for batch in batches:
            kept = batch.filter(pa.array(stays[at : at + batch.num_rows]))
            at += batch.num_rows
            if kept.num_rows:
                yield kept

    def _equal_of_topic(self, topics: TopicLogs, topic: str, rows: pa.RecordBatch) -> Mask:
        """Returns which of `rows` equal the best record that the logs of their topic have of their key."""
        equal = np.zeros(rows.num_rows, np.bool_)
        if topic not in topics.logs:
            return equal
        places = np.flatnonzero(is_foldable(rows).to_numpy(zero_copy_only=False))
        best = topics.best(topic, as_compared(rows)["key"].take(pa.array(places)))
        for number, log in enumerate(topics.logs[topic]):
            known = self.ranges.get(log.tp)
            if known is not None:
                own = (best.log == number) & (best.offset >= known.start)
                equal |= _equal_at(self.storage, known, rows, places[own], best.offset[own])
        return equal


def _equal_to_known(storage: Storage, known: OffsetRange, rows: pa.RecordBatch) -> Mask:
    """Returns which of `rows`, of one partition, equal the latest record of their key in `known`."""
    places = np.flatnonzero(is_foldable(rows).to_numpy(zero_copy_only=False))
    keys = as_compared(rows)["key"].take(pa.array(places))
    offsets = indexed_offsets(storage, known, keys)
    return _equal_at(storage, known, rows, places[offsets != NO_OFFSET], offsets[offsets != NO_OFFSET])


def _equal_at(
    storage: Storage, known: OffsetRange, rows: pa.RecordBatch, places: NDArray[np.int64], offsets: NDArray[np.int64]
) -> Mask:
    """Returns which of `rows`, those at `places` alone, equal the record of `known` at the offset of each place."""
    equal = np.zeros(rows.num_rows, np.bool_)
    try:
        for batch in _records_at(storage, known, np.unique(offsets)):
            # Of two keys with one hash, that of the record may be either: the first is compared, the other is sent.
            own = pc.index_in(batch["offset"], pa.array(offsets)).to_numpy()
            equal[places[own]] = _equal(rows.take(pa.array(places[own])), batch)
    except (MissingFileError, DamagedFileError) as error:
        _log.warning("records are sent uncompared", reason=error.message, partition=str(known.tp))
    return equal


def _records_at(storage: Storage, known: OffsetRange, offsets: NDArray[np.int64]) -> Iterator[pa.RecordBatch]:
    """Yields the records of `known` at `offsets`, which rise, some at a time."""
    for file_range in known.file_ranges:
        own = within(file_range, offsets)
        if len(own):
            yield from read_offsets(storage, file_range, own, VERIFIED)


def _equal(rows: pa.RecordBatch, others: pa.RecordBatch) -> Mask:
    """Returns which of `rows` a reader cannot tell from the same of `others`, but by offset and time."""
    return _same(rows["key"], others["key"]) & _same(rows["value"], others["value"]) & _same_headers(rows, others)


def _same(values: pa.Array, others: pa.Array) -> Mask:
    same = pc.fill_null(pc.equal(values, others), fill_value=False)
    return pc.or_(same, pc.and_(pc.is_null(values), pc.is_null(others))).to_numpy(zero_copy_only=False)


def _same_headers(rows: pa.RecordBatch, others: pa.RecordBatch) -> Mask:
    """Compares headers, in their order; those of an upstream keyfold are not published, and not compared."""
    (parents, headers), (other_parents, other_headers) = _headers_of(rows), _headers_of(others)
    counts = np.bincount(parents, minlength=rows.num_rows)
    same = counts == np.bincount(other_parents, minlength=rows.num_rows)
    headers = headers.filter(pa.array(same[parents]))
    other_headers = other_headers.filter(pa.array(same[other_parents]))
    alike = np.ones(len(headers), np.bool_)
    for field in (0, 1):
        alike &= _same(pc.struct_field(headers, field), pc.struct_field(other_headers, field))
    same[parents[same[parents]][~alike]] = False
    return same


def _headers_of(rows: pa.RecordBatch) -> tuple[NDArray[np.int64], pa.StructArray]:
    """Returns all headers that are published, one after the other, with the row of each."""
    headers = pc.list_flatten(rows["headers"])
    published = pc.invert(pc.starts_with(pc.struct_field(headers, 0), OWN_HEADERS))
    parents = pc.list_parent_indices(rows["headers"]).filter(published)
    return parents.to_numpy().astype(np.int64), headers.filter(published)
