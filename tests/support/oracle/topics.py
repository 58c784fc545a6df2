"""What has to hold if a key has one winner over all partitions of a topic (docs/decisions/0006-scope.md)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise

from compactor.model.actions import AddSnapshot, AnyAction, Clean
from compactor.model.record import TopicPartition
from compactor.model.state import CatalogState
from compactor.settings import FOREVER
from compactor.snapshot.manifest import by_partition
from tests.support.engine import Row
from tests.support.memory.journal import REFUSED, OutputRecord, OutputTopic, output_record
from tests.support.oracle.model import LogModel, Model
from tests.support.oracle.output import apply_records, letters_violations, same_record
from tests.support.oracle.snapshots import Loaded
from tests.support.oracle.steps import Settings

Table = dict[bytes | None, bytes | None]


def logs_of(model: Model, topic: str) -> list[LogModel]:
    """Returns the logs of `topic`, by partition."""
    return [model.logs[tp] for tp in sorted(model.logs) if tp.topic == topic]


def best_of_each_key(rows: Iterable[tuple[LogModel, Row]]) -> dict[bytes | None, tuple[LogModel, Row]]:
    """Returns the record of each key that wins, with its log."""
    best: dict[bytes | None, tuple[LogModel, Row]] = {}
    for log, row in rows:
        key = log.compared(row)
        if key not in best or log.place(row) > best[key][0].place(best[key][1]):
            best[key] = (log, row)
    return best


def winners(model: Model, topic: str, ends: Mapping[TopicPartition, int]) -> Table:
    """Returns the table of the winners below `ends`, by the key that each is written with; deleted keys are not there.

    Records that a tombstone had beaten when it was dropped count no more.
    """
    rows = (
        (log, row)
        for log in logs_of(model, topic)
        for row in log.held(log.first, ends[log.tp])
        if row["key"] is not None and (log.tp, row["offset"]) not in model.dead
    )
    best = best_of_each_key(rows).values()
    return {row["key"]: row["value"] for _, row in best if row["value"] is not None}


def refused(model: Model, topic: str) -> set[bytes | None]:
    """Returns what the keys are compared by of which the broker has refused a record: a reader has an earlier one."""
    return {
        log.identity(row["key"])
        for log in logs_of(model, topic)
        for row in log.rows(log.first, log.published)
        if row["value"] == REFUSED
    }


def cleaned(
    model: Model, actions: Iterable[AnyAction], settings: Settings, kept: Callable[[Clean], Collection[int]]
) -> Iterator[str]:
    """Applies the cleans of a commit to the logs of their topics; yields what is wrong with them.

    `kept` reads the offsets of a base run. A partition that came after the clean had begun is left out.
    """
    cleans = {action.tp: action for action in actions if isinstance(action, Clean)}
    for topic in sorted({tp.topic for tp in cleans}):
        logs = logs_of(model, topic)
        missing = [log.tp for log in logs if log.tp not in cleans and log.clean_end > log.first]
        if missing:
            yield f"{missing} are not cleaned with the other logs of the topic"
        wins = best_of_each_key((log, row) for log in logs for row in log.base_rows())
        for log in logs:
            for row in log.base_rows():
                winner, won = wins[log.compared(row)]
                if (winner, won["offset"]) != (log, row["offset"]):
                    log.beaten.add(row["offset"])
        bounds = {log.tp: log.published for log in logs}
        for log in logs:
            if log.tp in cleans:
                passed = _stamp(log, cleans[log.tp], settings)
                _decide(model, log, set(passed) - set(kept(cleans[log.tp])), bounds)


def _stamp(log: LogModel, action: Clean, settings: Settings) -> list[int]:
    """Stamps the tombstones of a log; returns the offsets of those past their horizon, which may be dropped."""
    now_ms = action.at_ms or 0
    horizon = min((log.last_fold_ms or now_ms) + settings.delete_retention, FOREVER)
    passed: list[int] = []
    for kept in log.base():
        if kept.row["value"] is None and kept.horizon is None:
            log.horizons[kept.row["offset"]] = horizon
        elif kept.horizon is not None and kept.horizon <= now_ms:
            passed.append(kept.row["offset"])
    return passed


def _decide(model: Model, log: LogModel, dropped: Collection[int], bounds: Mapping[TopicPartition, int]) -> None:
    """Notes that tombstones were `dropped`; what of their keys was published by then, to `bounds`, counts no more.

    Those of which a record waited to be published when the clean began have to stay: it would bring its key back.
    """
    for offset in dropped:
        log.dropped.add(offset)
        (row,) = log.rows(offset, offset + 1)
        key = log.compared(row)
        model.dead |= {
            (other.tp, each["offset"])
            for other in logs_of(model, log.tp.topic)
            for each in other.rows(other.first, bounds[other.tp])
            if other.compared(each) == key and other.place(each) <= log.place(row)
        }


def snapshot_violations(model: Model, action: AddSnapshot) -> Iterator[str]:
    """Yields if a snapshot of the base runs would not have the winners of the source at its vector."""
    logs = logs_of(model, action.topic)
    ends = {log.tp: log.clean_end for log in logs}
    table = {row["key"]: row["value"] for log in logs for row in log.live().rows}
    if table != winners(model, action.topic, ends):
        yield f"a snapshot has {table}, the source {winners(model, action.topic, ends)}"


def violations(
    state: CatalogState, model: Model, output: OutputTopic, tampered: Collection[TopicPartition]
) -> Iterator[str]:
    """Yields what a reader of `output` must not see after any step: promises 1, 2 and 4."""
    for topic in state.topics:
        places = {place: records for place, records in output.records.items() if place.topic == topic}
        yield from _early(model, topic, places)
        for log in logs_of(model, topic):
            streams = [[one for one in records if one.tp == log.tp] for records in places.values()]
            for stream in streams:
                yield from (f"{log.tp}: {wrong}" for wrong in _stream(log, stream, log.tp in tampered))
            sent = [(one.generation, one.source_offset) for stream in streams for one in stream if not one.retires]
            twice = {at for at in sent if sent.count(at) > 1 and at[1] >= 0}
            if twice:
                yield f"{log.tp}: {twice} are sent twice"
            letters = [one.source_offset for one in output.letters if (one.tp, one.generation) == (log.tp, log.number)]
            yield from (f"{log.tp}: {wrong}" for wrong in letters_violations(log, letters, log.tp in tampered))


def _early(model: Model, topic: str, places: Mapping[TopicPartition, Sequence[OutputRecord]]) -> Iterator[str]:
    """Yields if something of a generation is sent before all logs of the topic may be: a reader would lack keys."""
    logs = logs_of(model, topic)
    if all(log.folded_end >= log.first_end for log in logs):
        return
    numbers = {log.tp: log.number for log in logs if log.number > 1}
    for records in places.values():
        yield from (f"{one} is sent too early" for one in records if one.generation == numbers.get(one.tp))


def _stream(log: LogModel, stream: Sequence[OutputRecord], is_tampered: bool) -> Iterator[str]:
    """Checks the records of a log in one output partition."""
    own = [one for one in stream if not one.retires]
    for one, other in pairwise(own):
        if other.is_synthetic and is_tampered:
            continue
        if (one.generation, one.source_offset) >= (other.generation, other.source_offset):
            yield f"{other} comes after {one}"
    truth = {row["offset"]: output_record(row) for row in log.rows(log.first, log.folded_end)}
    for one in own:
        if one.generation == log.number and not same_record(one, truth.get(one.source_offset)):
            yield f"{one} is not {truth.get(one.source_offset)}"


def is_settled(model: Model, topic: str) -> bool:
    """Whether no fold of the topic is sent in part, and no generation has begun and is not there as a whole."""
    logs = logs_of(model, topic)
    return all(log.published == log.folded_end and log.published >= max(log.first_end, log.resumes_to) for log in logs)


def reader_violations(state: CatalogState, model: Model, output: OutputTopic) -> Iterator[str]:
    """Yields if a reader has another table than the source below the published offsets: promise 3."""
    for topic in state.topics:
        if not is_settled(model, topic):
            continue
        logs = logs_of(model, topic)
        out = refused(model, topic)
        identity = logs[0].identity if logs else lambda key: key
        tables = [apply_records(records) for place, records in output.records.items() if place.topic == topic]
        live = [(key, value) for each in tables for key, value in each.items() if identity(key) not in out]
        table = dict(live)
        if len(live) > len(table):
            yield f"a reader of {topic} has keys in several partitions: {tables}"
        source = winners(model, topic, {log.tp: log.published for log in logs})
        source = {key: value for key, value in source.items() if identity(key) not in out}
        if table != source:
            yield f"a reader of {topic} has {table}, the source {source}"


def unpublished(model: Model, under_way: Collection[TopicPartition], now_ms: int, settings: Settings) -> Iterator[str]:
    """Yields what should be published of each topic at `now_ms`; nothing is while a log waits for its beginning."""
    for topic in sorted({tp.topic for tp in model.logs}):
        logs = logs_of(model, topic)
        bounds = {log.tp: log.publishable(now_ms, settings) for log in logs}
        if any(log.end < log.backlog_end or log.published < max(log.first_end, log.resumes_to) for log in logs):
            continue
        for log in logs:
            if log.published != log.folded_end:
                yield f"{log.tp}: a fold to {log.folded_end} is under way, published is {log.published}"
            least, most = bounds[log.tp]
            if log.tp not in under_way and not least <= log.published <= most:
                yield f"{log.tp}: published is {log.published}, publishable at least {least}, at most {most}"


def resumed(loaded: Loaded, topic: str, model: Model, output: OutputTopic) -> Iterator[str]:
    """Yields if who goes on from a snapshot has another table than who has read all of the output."""
    starts = loaded.manifest.output_offsets
    records = {place.partition: sent for place, sent in output.records.items() if place.topic == topic}
    if starts.keys() < by_partition(dict.fromkeys(records, 0)).keys():
        yield f"who goes on has no offset of {records.keys() - starts.keys()}"
    tables = [apply_records(sent) for sent in records.values()]  # a key may have left another partition
    everything = {key: value for each in tables for key, value in each.items()}
    rest = (one for number in sorted(records) for one in records[number] if one.offset >= starts[str(number)])
    table = apply_records(rest, {row["key"]: row["value"] for row in loaded.rows})
    out = {one.key for one in output.letters if one.topic == topic and one.value == REFUSED}
    log = next(iter(logs_of(model, topic)))
    out = {log.identity(key) for key in out}
    mine = {key: value for key, value in table.items() if log.identity(key) not in out}
    theirs = {key: value for key, value in everything.items() if log.identity(key) not in out}
    if mine != theirs:
        yield f"who goes on at {starts} has {mine}, who followed {theirs}"
