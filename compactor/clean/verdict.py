"""What was decided about a log's full fold, with its reason and figures, in words for whoever asks."""

from __future__ import annotations

from datetime import UTC, datetime
from enum import Enum
from typing import Final

from msgspec import Struct

from compactor.clean.log_to_clean import LogToClean
from compactor.model.record import TopicPartition


class Reason(Enum):
    """Why a log is due, or why not. The value is what `describe` prints."""

    OVERDUE = "overdue"
    INTERVAL = "interval passed"
    EXPIRED = "tombstones expired"
    UNSTAMPED = "tombstones without a horizon"
    DIRTY = "dirty enough"
    UNMEASURED = "to be measured"
    CLEAN_ENOUGH = "clean enough"
    HELD = "held"
    TOMBSTONES = "tombstones wait"
    NOTHING = "nothing to do"
    BUSY = "busy"
    QUARANTINED = "quarantined"
    UNCERTAIN = "position unknown"
    NOT_COMPACTED = "not compacted"
    FAULTY = "faulty"


class Kind(Enum):
    """The two queues of due logs: by time, and by dirty ratio."""

    OVERDUE = "overdue"
    FILTHY = "filthy"


_KINDS: Final = {
    Reason.OVERDUE: Kind.OVERDUE,
    Reason.INTERVAL: Kind.OVERDUE,
    Reason.EXPIRED: Kind.OVERDUE,
    Reason.UNSTAMPED: Kind.OVERDUE,
    Reason.DIRTY: Kind.FILTHY,
}

_TEXTS: Final = {
    Reason.OVERDUE: "Due: its oldest dirty record should have been folded by {when} (max.compaction.lag.ms).",
    Reason.INTERVAL: "Due since {when}: {records} dirty records, and fold.full.interval.ms has passed.",
    Reason.EXPIRED: "Due since {when}: the delete horizon of tombstones has passed.",
    Reason.UNSTAMPED: "Due since {when}: tombstones have no delete horizon yet.",
    Reason.DIRTY: "Due: its dirty ratio is {ratio:.3f}, above min.cleanable.dirty.ratio {limit:g}.",
    Reason.UNMEASURED: "Not decided: {unsure} bytes lie across the published offset and have to be counted first.",
    Reason.CLEAN_ENOUGH: "Not due: its dirty ratio is {ratio:.3f}, not above min.cleanable.dirty.ratio {limit:g}; "
    "due by time {next}.",
    Reason.HELD: "Not due: {held} bytes are inside min.compaction.lag.ms or not published yet, none is foldable.",
    Reason.TOMBSTONES: "Not due: nothing is dirty; tombstones are kept, due by time {next}.",
    Reason.NOTHING: "Not due: nothing is dirty and there are no tombstones.",
    Reason.BUSY: "Not considered: a fold of it is running.",
    Reason.QUARANTINED: "Not considered: it is quarantined; see its error, then `release` it.",
    Reason.UNCERTAIN: "Not considered: its committed position is not known yet, or lies above the log's end.",
    Reason.NOT_COMPACTED: "Not considered: its cleanup.policy has no compact.",
    Reason.FAULTY: "Not considered: {fault}",
}


class CleaningDecision(Struct, frozen=True, kw_only=True):
    """Whether one log is due for a full fold.

    `due_ms` is since when it is due by time, or when it will be without any traffic; None: never by time.
    `limit` is min.cleanable.dirty.ratio; `fault` is what is wrong with a FAULTY log.
    """

    tp: TopicPartition
    reason: Reason
    dirt: LogToClean = LogToClean()
    limit: float = 0.5
    due_ms: int | None = None
    fault: str = ""

    @property
    def kind(self) -> Kind | None:
        """The queue it waits in; None where it is not due."""
        return _KINDS.get(self.reason)

    @property
    def due(self) -> bool:
        """Whether a full fold should take it now."""
        return self.kind is not None

    @property
    def text(self) -> str:
        """The reason as a sentence."""
        when = moment(self.due_ms)
        return _TEXTS[self.reason].format(
            when=when,
            next="never" if self.due_ms is None else f"at {when}",
            ratio=self.dirt.ratio,
            limit=self.limit,
            records=self.dirt.records,
            unsure=self.dirt.unsure,
            held=self.dirt.held,
            fault=self.fault,
        )


_LAST_MS: Final = 253_402_300_799_999
"""The end of the year 9999, beyond which dates are not written."""


def moment(at_ms: int | None) -> str:
    """`at_ms` as a date and time (UTC); `never` for None and what is beyond the year 9999."""
    if at_ms is None or at_ms > _LAST_MS:
        return "never"
    return datetime.fromtimestamp(max(at_ms, 0) / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
