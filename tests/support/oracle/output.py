"""Checks the promises of docs/protocol.md on what a read_committed reader of the output sees."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise

from compactor.model.log import OutputPoint, PartitionLog
from compactor.model.record import TopicPartition
from compactor.model.state import CatalogState
from tests.support.engine import Row
from tests.support.memory.journal import REFUSED, OutputRecord, OutputTopic, output_record
from tests.support.oracle.model import LogModel, Model, Place
from tests.support.oracle.steps import Settings

Table = dict[bytes | None, bytes | None]


def apply_records(records: Iterable[OutputRecord], table: Mapping[bytes | None, bytes | None] | None = None) -> Table:
    """Returns `table` after `records`: each replaces its key, a null value deletes it."""
    found = dict(table or {})
    for record in records:
        found[record.key] = record.value
        if record.value is None:
            del found[record.key]
    return found


def violations(
    state: CatalogState,
    model: Model,
    output: OutputTopic,
    tampered: Collection[TopicPartition],
    *,
    skips: bool = False,
) -> Iterator[str]:
    """Yields everything that a reader of `output` must not see; `skips`: records that change nothing may be missing.

    Of the `tampered` partitions dead letters may come again, and a pair of offsets may lie before what it stands for:
    where the position was lost, only an older one of the catalog's tells where the output was.
    """
    for log in state.logs:
        mine, everything = model.logs[log.tp], output.records.get(log.tp, [])
        records = [one for one in everything if one.tp == log.tp and one.generation == mine.number]
        if everything[len(everything) - len(records) :] != records:
            yield f"{log.tp}: records of an earlier generation follow those of generation {mine.number}"
        yield from (f"{log.tp}: {wrong}" for wrong in _stream(mine, records, log.tp in tampered))
        if mine.published >= mine.resumes_to:  # inside a fold that goes on after a rebuild, readers may lack keys
            yield from (f"{log.tp}: {wrong}" for wrong in _last(mine, records, skips))
            yield from (f"{log.tp}: {wrong}" for wrong in _follower(mine, everything))
        yield from (f"{log.tp}: {wrong}" for wrong in _points(log, records, log.tp in tampered))
        letters = [one.source_offset for one in output.letters if (one.tp, one.generation) == (log.tp, mine.number)]
        yield from (f"{log.tp}: {wrong}" for wrong in letters_violations(mine, letters, log.tp in tampered))


def _stream(mine: LogModel, records: Sequence[OutputRecord], tampered: bool) -> Iterator[str]:
    """Checks promises 1, 2 and 4; where the position was lost, tombstones without a source record may come again."""
    rows = mine.rows(mine.first, mine.folded_end)
    truth = {row["offset"]: output_record(row) for row in rows if row["value"] != REFUSED}
    yield from _retired(mine, records)
    records = [one for one in records if not one.retires]
    for one, other in pairwise(records):
        if tampered and other.is_synthetic:
            continue
        if one.source_offset >= other.source_offset or one.offset >= other.offset:
            yield f"source offset {other.source_offset} comes after {one.source_offset}"
    for record in records:
        if not same_record(record, truth.get(record.source_offset)):
            yield f"{record} is not {truth.get(record.source_offset)}"


def _retired(mine: LogModel, records: Sequence[OutputRecord]) -> Iterator[str]:
    """Checks that each tombstone for another encoding of a key is directly before the record that has the key.

    Where that one was refused the tombstone is alone.
    """
    behind = {one.offset: one for one in records}
    refused = {row["offset"] for row in mine.rows(mine.first, mine.folded_end) if row["value"] == REFUSED}
    for one in records:
        if one.retires and one.source_offset not in refused:
            other = behind.get(one.offset + 1)
            if other is None or (one.source_offset, mine.identity(one.key)) != (
                other.source_offset,
                mine.identity(other.key),
            ):
                yield f"{one} is followed by {other}"


def same_record(record: OutputRecord, source: OutputRecord | None) -> bool:
    """Returns whether a record of the output is that of the source."""
    if source is None:
        return False
    fields = ("tp", "key", "value", "headers", "timestamp", "timestamp_type")
    return all(getattr(record, name) == getattr(source, name) for name in fields)


def _last(mine: LogModel, records: Sequence[OutputRecord], skips: bool) -> Iterator[str]:
    """Checks promise 3: an earlier record stands for one that `skips` may have left out, if it says the same."""
    seen = [record for record in records if record.source_offset < mine.published and not record.retires]
    expected = mine.last_of_each_key(mine.rows(mine.first, mine.published))
    refused = _refused(mine, expected)
    last = {mine.identity(record.key): record for record in seen if mine.identity(record.key) not in refused}
    truth = {mine.identity(row["key"]): output_record(row) for row in expected if row["value"] != REFUSED}
    same = (
        one.source_offset == truth[key].source_offset or (skips and _says(one, truth[key])) for key, one in last.items()
    )
    if last.keys() != truth.keys() or not all(same):
        places = {key: one.source_offset for key, one in last.items()}
        yield f"below {mine.published} the last of each key are {places}, in the source {_places(expected)}"


def _says(record: OutputRecord, source: OutputRecord) -> bool:
    """Returns whether an earlier record of the output says what a record of the source does."""
    earlier = record.source_offset < source.source_offset
    return earlier and all(getattr(record, name) == getattr(source, name) for name in ("tp", "key", "value", "headers"))


def _follower(mine: LogModel, everything: Sequence[OutputRecord]) -> Iterator[str]:
    """Checks the table of a consumer that reads all generations, once the first fold of this one was sent."""
    if mine.published < mine.first_end:
        return
    seen = [
        one
        for one in everything
        if one.tp != mine.tp or one.generation < mine.number or one.source_offset < mine.published
    ]
    expected = mine.last_of_each_key(mine.rows(mine.first, mine.published))
    table = {row["key"]: row["value"] for row in expected if row["value"] is not None}
    # What retention has removed of the log before a later record came is for the output's own retention to remove.
    gone = left_of((one for one in seen if one.tp == mine.tp), mine.left)
    found = {key: value for key, value in apply_records(seen).items() if key in table or key not in gone}
    refused = _refused(mine, expected)  # of these a reader has the record before, or none
    found = {key: value for key, value in found.items() if mine.identity(key) not in refused}
    table = {key: value for key, value in table.items() if mine.identity(key) not in refused}
    if found != table:
        yield f"a follower has {found}, the source {table}"


def left_of(records: Iterable[OutputRecord], left: Mapping[bytes, Place]) -> set[bytes | None]:
    """Returns the keys of which the last of `records` is no later than what retention has taken (`LogModel.left`)."""
    places = {one.key: (one.generation, one.source_offset) for one in records}
    return {key for key, place in left.items() if key in places and places[key] <= place}


def _refused(mine: LogModel, last: Iterable[Row]) -> set[bytes | None]:
    """Returns by what the keys are compared whose `last` record the broker has refused."""
    return {mine.identity(row["key"]) for row in last if row["value"] == REFUSED}


def _places(rows: Iterable[Row]) -> dict[bytes | None, int]:
    return {row["key"]: row["offset"] for row in rows}


def _points(log: PartitionLog, records: Sequence[OutputRecord], tampered: bool) -> Iterator[str]:
    """Checks that pairs of offsets split source and output at the same record."""
    for point in filter(None, (log.output, log.base_output)):
        yield from _cut(point, records, tampered)


def _cut(point: OutputPoint, records: Sequence[OutputRecord], tampered: bool) -> Iterator[str]:
    missed = [one for one in records if one.source_offset >= point.source_offset and one.offset < point.output_offset]
    again = [one for one in records if one.source_offset < point.source_offset and one.offset >= point.output_offset]
    if missed or (again and not tampered):
        yield f"{point} would miss {missed} and repeat {again}"


def letters_violations(mine: LogModel, letters: Sequence[int], tampered: bool) -> Iterator[str]:
    """Yields what is wrong with the dead letters of a log, given their offsets."""
    expected = [row["offset"] for row in mine.rows(mine.first, mine.published) if row["key"] is None]
    keyed = {row["offset"] for row in mine.rows(mine.first, mine.published) if row["key"] is not None}
    found = [offset for offset in letters if offset < mine.published and offset not in keyed]  # those were refused
    if sorted(set(found)) != expected or (len(found) > len(expected) and not tampered):
        yield f"dead letters are {found}, without a key are {expected}"


def unpublished(model: Model, under_way: Collection[TopicPartition], now_ms: int, settings: Settings) -> Iterator[str]:
    """Yields what should be published at `now_ms`. For the logs `under_way` it is enough that their fold ended."""
    for tp, log in model.logs.items():
        if log.published != log.folded_end:
            yield f"{tp}: a fold to {log.folded_end} is under way, published is {log.published}"
        least, most = log.publishable(now_ms, settings)
        if tp not in under_way and not least <= log.published <= most:
            yield f"{tp}: published is {log.published}, publishable at least {least}, at most {most}"
