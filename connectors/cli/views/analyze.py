"""The text of `keyfold analyze`: what goes and what stays of each topic, then the partitions one by one. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import typer

from compactor.analyze.effect import Amount, Effect, Outcome
from compactor.model import record
from compactor.model.times import moment
from connectors.counted import counted
from connectors.operations.analyze import AnalyzeReport, PartitionReport, TopicReport, outcomes
from connectors.operations.balance import BALANCE, BalanceLine, held_by
from connectors.progress.terminal import table

_WITH: Final = "WITH"
_PUBLISHED: Final = "PUBLISHED"
_FOLD_TO: Final = "FOLD TO"


class _Signed(int):
    """A difference: a rise shows its sign as a fall does."""

    def __format__(self, spec: str) -> str:
        return int.__format__(self, f"+{spec}" if self > 0 else spec)


def text(report: AnalyzeReport) -> str:
    """Returns the whole text; its sections are parted by an empty line."""
    own = record.by_topic(report.partitions)
    topics = (_topic_section(topic, own.get(topic.topic, ())) for topic in report.topics)
    sections = [_head(report), *topics, *_partition_sections(report)]
    return "\n\n".join("\n".join(lines) for section in sections if (lines := list(section)))


def _head(report: AnalyzeReport) -> Iterator[str]:
    lives = "A worker is running" if report.worker_alive else "No worker is running"
    yield f"What a full fold of connector {report.connector} would do at {moment(report.now_ms)}."
    yield f"{lives}. Counted is what is ingested; nothing was changed."
    if report.changes:
        yield f"{_WITH} is: {', '.join(f'{key}={value}' for key, value in report.changes.items())}"
    for partition in report.partitions:
        if partition.unread is not None:
            yield f"Left out: {partition.topic}-{partition.partition} cannot be folded. {partition.unread}"
    ahead = [
        partition for partition, present, _ in outcomes(report.partitions) if present.fold_end > partition.published
    ]
    if ahead:
        what = counted(len(ahead), "partition")
        yield f"Before it folds, a worker publishes: {what} may be published further, from {_PUBLISHED} to {_FOLD_TO}."


def _topic_section(topic: TopicReport, partitions: Sequence[PartitionReport]) -> Iterator[str]:
    effects = [effect for effect in (topic.present, topic.changed) if effect]
    held = held_by(partitions)
    headers = [f"{topic.topic}, {counted(topic.partitions, 'partition')}", "RECORDS", "BYTES"]
    if topic.changed:
        headers += [f"RECORDS {_WITH}", f"BYTES {_WITH}", "RECORDS +/-", "BYTES +/-"]
    lines = (line for line in BALANCE if line.shown(effects))
    yield table(headers, [("  " * line.depth + line.label.format(held=held), *_cells(line, effects)) for line in lines])
    yield from _sentences(topic)


def _cells(line: BalanceLine, effects: Sequence[Effect]) -> tuple[int, ...]:
    amounts = [line.amount(effect) for effect in effects]
    plain = tuple(figure for amount in amounts for figure in (amount.records, amount.bytes))
    if len(amounts) == 1:
        return plain
    rise = amounts[1] - amounts[0]
    return (*plain, _Signed(rise.records), _Signed(rise.bytes))


def _sentences(topic: TopicReport) -> Iterator[str]:
    if topic.closed:
        yield f"The topic is closed ({topic.closed}): nothing more of it is published."
    if topic.left_out:
        yield f"{counted(topic.left_out, 'partition')} left out of these figures."
    yield _share(topic.present)
    yield from _horizons(topic.present)
    if topic.changed:
        if topic.changed == topic.present:
            yield f"{_WITH}: not one of these figures differs."
        else:
            yield f"{_WITH}: {_share(topic.changed)}"
            yield from (f"{_WITH}: {line}" for line in _horizons(topic.changed))
    yield from _split_lines(topic)


def _share(effect: Effect) -> str:
    if not effect.before.records:
        return "There are no records."
    if effect.gone == Amount():
        return "A full fold removes nothing."
    records = 100 * effect.after.records / effect.before.records
    size = f" and {100 * effect.after.bytes / effect.before.bytes:.1f} % of the bytes" if effect.before.bytes else ""
    return f"A full fold keeps {records:.1f} % of the records{size}."


def _horizons(effect: Effect) -> Iterator[str]:
    """Yields the line that says when the tombstones that stay may go."""
    if not effect.tombstones.records:
        return
    stamped = f" {effect.stamped:,} of them get their delete horizon by this fold." if effect.stamped else ""
    yield f"Tombstones that are kept: {effect.tombstones.records:,}; {_dropped(effect)}.{stamped}"


def _dropped(effect: Effect) -> str:
    first, last = moment(effect.earliest_horizon_ms), moment(effect.latest_horizon_ms)
    if first == last:
        return "none is ever dropped" if first == moment(None) else f"a full fold from {first} on drops them"
    return f"a full fold from {first} on drops the first, from {last} on the last"


def _split_lines(topic: TopicReport) -> Iterator[str]:
    """Yields the lines about keys that no fold joins, as they are in several partitions."""
    split = topic.split_keys
    if split is None:
        return
    if split.keys:
        keys = counted(split.keys, "key")
        yield f"{keys} in more than one partition: each partition keeps its own last record, and no fold joins them."
        rows = [(example.text, ", ".join(map(str, example.partitions))) for example in split.examples]
        yield table(("  KEY", "PARTITIONS"), [(f"  {key}", places) for key, places in rows])
        if split.keys > len(split.examples):
            yield f"  … and {split.keys - len(split.examples):,} more"
    else:
        yield "No key lives in more than one partition."
    if split.outdated.records:
        amount = f"{split.outdated.records:,}, {split.outdated.bytes:,} bytes"
        deleted = f"; of {counted(split.deleted, 'key')} it is a tombstone" if split.deleted else ""
        yield f"Live records with a later one of their key in another partition: {amount}{deleted}."


def _partition_sections(report: AnalyzeReport) -> Iterator[Iterator[str]]:
    """Yields the tables of all partitions: as it is, then with the changed settings."""
    read = outcomes(report.partitions)
    yield _tables("now", [(partition, present, None) for partition, present, _ in read])
    changed = [(partition, other, present) for partition, present, other in read if other]
    if changed:
        yield _tables(_WITH, changed)


Row = tuple[PartitionReport, Outcome, Outcome | None]
"""A partition, what is found of it, and what that is compared with."""


def _tables(when: str, rows: Sequence[Row]) -> Iterator[str]:
    if not rows:
        return
    yield _figures(f"Records, {when}", (_PUBLISHED, _FOLD_TO), "records", rows)
    yield ""
    yield _figures(f"Bytes, {when}", (), "bytes", rows)
    yield ""
    yield _decisions(when, rows)
    yield from _retained(rows)


_GOES: Final = ("retention", "superseded", "expired", "rejected")
_STAYS: Final = ("live", "tombstones", "held", "unfolded")
_SELDOM: Final = ("retention", "rejected", "unfolded")
"""Columns that are left out if they would hold nothing but zeros."""


def _columns(names: Iterable[str], rows: Sequence[Row]) -> list[str]:
    return [
        name for name in names if name not in _SELDOM or any(getattr(row[1].effect, name) != Amount() for row in rows)
    ]


def _figures(title: str, place: Sequence[str], unit: str, rows: Sequence[Row]) -> str:
    """Returns the table of all partitions in one `unit` of Amount; `place` are columns of the partition before it."""
    names = ["before", *_columns(_GOES, rows), "after", *_columns(_STAYS, rows)]
    compared = ["AFTER +/-"] if any(other for *_, other in rows) else []
    headers = ["PARTITION", *place, *(name.upper() for name in names), *compared]
    cells = []
    for partition, outcome, other in rows:
        ends = {_PUBLISHED: partition.published, _FOLD_TO: outcome.fold_end}
        figures = [getattr(getattr(outcome.effect, name), unit) for name in names]
        # How much more stays than under the settings that are compared with.
        rise = [_Signed(getattr(outcome.effect.after - other.effect.after, unit))] if other else []
        cells.append((_name(partition), *(ends[name] for name in place), *figures, *rise))
    return f"{typer.style(title, bold=True)}\n{table(headers, cells)}"


def _decisions(when: str, rows: Sequence[Row]) -> str:
    """Returns the table that says whether the cleaner would fold by itself, and until when tombstones stay."""
    headers = ("PARTITION", "DIRTY", "STAMPED", "FIRST HORIZON", "LAST HORIZON", "WOULD THE CLEANER FOLD IT BY ITSELF?")
    cells = [(_name(partition), *_decision_row(outcome)) for partition, outcome, _ in rows]
    return f"{typer.style(f'Cleaner, {when}', bold=True)}\n{table(headers, cells)}"


def _decision_row(outcome: Outcome) -> tuple[object, ...]:
    effect = outcome.effect
    horizons = (effect.earliest_horizon_ms, effect.latest_horizon_ms)
    times = (None if each is None else moment(each) for each in horizons)
    return (outcome.dirty_ratio, effect.stamped, *times, outcome.why)


def _retained(rows: Sequence[Row]) -> Iterator[str]:
    """Yields the lines that say what retention would remove."""
    lines = [
        f"{_name(partition)}: {outcome.retained}"
        for partition, outcome, _ in rows
        if outcome.effect.retention != Amount()
    ]
    yield from ("", *lines) if lines else ()


def _name(partition: PartitionReport) -> str:
    return f"{partition.topic}-{partition.partition}"
