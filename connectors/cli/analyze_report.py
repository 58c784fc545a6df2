"""What `keyfold analyze` says, as values; pure. The fields are those of `analyze --json` (docs/formats.md)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from msgspec import Struct

from compactor.analyze.effect import Analysis, Effect, Outcome, PartitionAnalysis, SplitKeys, by_topic, total
from compactor.model.state import State

FORMAT: Final = 1
LONGEST_KEY: Final = 40


class SplitKey(Struct, frozen=True, kw_only=True):
    """A key with live records in several partitions; `text` is for reading."""

    key: bytes
    text: str
    partitions: tuple[int, ...]


class Split(Struct, frozen=True, kw_only=True):
    """How many such keys a topic has, and a few of them."""

    keys: int
    examples: tuple[SplitKey, ...]


class TopicReport(Struct, frozen=True, kw_only=True):
    """The sum over a topic's partitions, but for those `left_out`; `closed` says why it is no longer read.

    `changed` is None without changed settings; `split_keys` where less than two partitions hold live records.
    """

    topic: str
    closed: str | None
    partitions: int
    left_out: int
    present: Effect
    changed: Effect | None
    split_keys: Split | None


class PartitionReport(Struct, frozen=True, kw_only=True):
    """One partition; `unread` is the error for which it was left out, and then there are no outcomes."""

    topic: str
    partition: int
    ingested: int
    published: int
    unread: str | None
    present: Outcome | None
    changed: Outcome | None


class Report(Struct, frozen=True, kw_only=True):
    """Everything; `changes` are the settings of --with, empty without any."""

    format_version: int
    connector: str
    catalog_id: str
    catalog_version: int
    now_ms: int
    worker_alive: bool
    changes: Mapping[str, str]
    topics: tuple[TopicReport, ...]
    partitions: tuple[PartitionReport, ...]


def report(
    found: Analysis, state: State, catalog_version: int, now_ms: int, changes: Mapping[str, str], *, worker_alive: bool
) -> Report:
    """The report of what was found in `state` at `now_ms`: under the present settings, and with `changes` to them."""
    topics = by_topic(found.partitions)
    return Report(
        format_version=FORMAT,
        connector=state.connector,
        catalog_id=state.catalog_id,
        catalog_version=catalog_version,
        now_ms=now_ms,
        worker_alive=worker_alive,
        changes=dict(changes),
        topics=tuple(_topic(state, topic, own, found.split.get(topic)) for topic, own in topics.items()),
        partitions=tuple(_partition(one) for own in topics.values() for one in own),
    )


def _topic(state: State, topic: str, partitions: Sequence[PartitionAnalysis], split: SplitKeys | None) -> TopicReport:
    outcomes = [one.outcomes for one in partitions if one.outcomes]
    return TopicReport(
        topic=topic,
        closed=state.topics[topic].closed,
        partitions=len(partitions),
        left_out=len(partitions) - len(outcomes),
        present=total(each[0].effect for each in outcomes),
        changed=total(each[1].effect for each in outcomes) if any(len(each) > 1 for each in outcomes) else None,
        split_keys=_split(split) if split else None,
    )


def _split(found: SplitKeys) -> Split:
    return Split(
        keys=found.keys,
        examples=tuple(
            SplitKey(key=one.key, text=readable(one.key), partitions=one.partitions) for one in found.examples
        ),
    )


def _partition(one: PartitionAnalysis) -> PartitionReport:
    present, changed, *_ = (*one.outcomes, None, None)
    return PartitionReport(
        topic=one.topic,
        partition=one.partition,
        ingested=one.ingested,
        published=one.published,
        unread=one.unread,
        present=present,
        changed=changed,
    )


def readable(key: bytes) -> str:
    """`key` as it may be shown on a terminal, at most LONGEST_KEY characters: text where it is printable, else hex."""
    try:
        text = key.decode()
    except UnicodeDecodeError:
        text = ""
    shown = text if text and text.isprintable() else f"0x{key[:LONGEST_KEY].hex()}" if key else '""'
    return shown if len(shown) <= LONGEST_KEY else f"{shown[: LONGEST_KEY - 1]}…"


def outcomes(partitions: Iterable[PartitionReport]) -> tuple[tuple[PartitionReport, Outcome, Outcome | None], ...]:
    """Those that were read, with what was found under the present and the changed settings."""
    return tuple((one, one.present, one.changed) for one in partitions if one.present)
