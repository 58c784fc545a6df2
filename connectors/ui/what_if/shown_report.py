"""What the page shows of an answer: sums of all topics, the balance in rows, topics and partitions by pages. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from msgspec import Struct

from compactor.analyze.effect import Amount, Effect, Outcome, total
from compactor.model.times import moment
from connectors.operations.analyze import AnalyzeReport, PartitionReport, TopicReport
from connectors.operations.balance import BALANCE, held_by
from connectors.ui.texts import page_of
from connectors.ui.what_if.bars import Bar, bar, legend, whole_bar

MOST_ROWS: Final = 50
"""Partitions of a page: two rows each."""
MOST_TOPICS: Final = 50

NOW: Final = "Kept now"
AS_SET: Final = "As it is set"
CHANGED: Final = "With the changes"


class BalanceRow(Struct, frozen=True):
    """A line of the balance: what it is, its depth, and amounts with the present and with the changed settings."""

    label: str
    depth: int
    present: Amount
    changed: Amount | None

    @property
    def rise(self) -> Amount | None:
        """What the changes add."""
        return None if self.changed is None else self.changed - self.present


class PartitionOutcome(Struct, frozen=True):
    """A partition under some settings; `removed` is by rule."""

    partition: PartitionReport
    label: str
    outcome: Outcome
    removed: tuple[tuple[str, Amount], ...]


class ShownReport(Struct, frozen=True, kw_only=True):
    """Everything that the page shows of a report."""

    report: AnalyzeReport
    bars: tuple[tuple[str, tuple[Bar, ...]], ...]
    legend: tuple[tuple[str, str], ...]
    balance: tuple[BalanceRow, ...]
    topics: tuple[TopicReport, ...]
    more_topics: int
    rows: tuple[PartitionOutcome, ...]
    left_out: tuple[PartitionReport, ...]
    page: int
    pages: int
    due: int
    due_changed: int | None
    horizons: str | None
    horizons_changed: str | None
    same: bool


def shown_report(report: AnalyzeReport, page: int) -> ShownReport:
    """Returns what a page of the partitions shows of a report."""
    present = total(each.present for each in report.topics)
    changed = total(each.changed for each in report.topics if each.changed) if report.changes else None
    effects = [present] if changed is None else [present, changed]
    partitions, number, pages = page_of(report.partitions, page, MOST_ROWS)
    return ShownReport(
        report=report,
        bars=tuple((unit, tuple(_bars(present, changed, unit))) for unit in ("records", "bytes")),
        legend=legend(*effects),
        balance=tuple(_balance(report, effects)),
        topics=report.topics[:MOST_TOPICS],
        more_topics=max(0, len(report.topics) - MOST_TOPICS),
        rows=tuple(row for each in partitions for row in _rows(each)),
        left_out=tuple(each for each in partitions if each.unread is not None),
        page=number,
        pages=pages,
        due=sum(each.present.due for each in report.partitions if each.present),
        due_changed=sum(each.changed.due for each in report.partitions if each.changed) if report.changes else None,
        horizons=_horizons(present),
        horizons_changed=_horizons(changed) if changed else None,
        same=changed == present,
    )


def _bars(present: Effect, changed: Effect | None, unit: str) -> Iterator[Bar]:
    yield whole_bar(NOW, present, unit)
    yield bar(AS_SET, present, unit)
    if changed is not None:
        yield bar(CHANGED, changed, unit)


def _balance(report: AnalyzeReport, effects: list[Effect]) -> Iterator[BalanceRow]:
    held = held_by(report.partitions)
    for line in BALANCE:
        if line.shown(effects):
            amounts = [line.amount(effect) for effect in effects]
            label = line.label.format(held=held)
            yield BalanceRow(label, line.depth, amounts[0], amounts[1] if len(amounts) > 1 else None)


def _rows(partition: PartitionReport) -> Iterator[PartitionOutcome]:
    for label, outcome in ((AS_SET, partition.present), (CHANGED, partition.changed)):
        if outcome is not None:
            removed = [(each.label, getattr(outcome.effect, each.field)) for each in BALANCE if each.goes]
            yield PartitionOutcome(partition, label, outcome, tuple(each for each in removed if each[1] != Amount()))


def _horizons(effect: Effect) -> str | None:
    """Says when the tombstones that stay may go; None without any."""
    if not effect.tombstones.records:
        return None
    first, last = moment(effect.earliest_horizon_ms), moment(effect.latest_horizon_ms)
    if first == last:
        never = first == moment(None)
        return "None of the tombstones is ever dropped." if never else f"A full fold from {first} on drops them."
    return f"A full fold from {first} on drops the first tombstones, one from {last} on the last."
