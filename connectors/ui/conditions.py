"""Says how a connector is, worst first: its state in Connect's word, and what else a person has to know. Pure."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from connectors.metrics.measured import MeasuredConnector
from connectors.runtime.status import ConnectorState
from connectors.runtime.supervised_connector import Connector

LATE_MS: Final = 60_000
"""From so much lag (ms) on a connector is called late if health.max.lag.ms says nothing: a minute is more than any
publish takes, and less than a person waits before he asks."""

_TONES: Final = {
    ConnectorState.FAILED: "bad",
    ConnectorState.RUNNING: "good",
    ConnectorState.RESTARTING: "warn",
    ConnectorState.UNASSIGNED: "warn",
}
_RANKS: Final = {
    ConnectorState.FAILED: 0,
    ConnectorState.RESTARTING: 2,
    ConnectorState.UNASSIGNED: 5,
    ConnectorState.RUNNING: 6,
    ConnectorState.PAUSED: 7,
    ConnectorState.STOPPED: 8,
}
_HALTED: Final = (ConnectorState.PAUSED, ConnectorState.STOPPED)


class Pill(Struct, frozen=True):
    """A word about a connector; `tone` is good, warn, bad or idle."""

    text: str
    tone: str


class Condition(Struct, frozen=True):
    """How a connector is: its pills, the state first, and `rank`, the lower the more it needs a person."""

    pills: tuple[Pill, ...]
    rank: int
    late_ms: int
    is_late: bool


def lateness_ms(measured: MeasuredConnector, now_ms: int) -> int:
    """Returns for how long (ms) the oldest record waits that is not taken in, or is to be published and is not."""
    unread = [log.source.since_ms for log in measured.logs if log.source and log.source.since_ms is not None]
    return max(measured.lag_ms(now_ms), now_ms - min(unread, default=now_ms))


def condition(connector: Connector, measured: MeasuredConnector, now_ms: int, late_ms: int = LATE_MS) -> Condition:
    """Returns how a connector is at `now_ms`; from `late_ms` of lag on it is late, unless it was told to halt."""
    status = connector.status
    waited_ms = lateness_ms(measured, now_ms)
    is_late = waited_ms >= late_ms and status.state not in _HALTED
    quarantined = sum(log.is_quarantined for log in measured.logs)
    more = [
        (1, Pill("waits for an outage", "warn"), status.waits),
        (3, Pill(f"{quarantined} in quarantine", "bad"), quarantined > 0),
        (4, Pill("late", "warn"), is_late),
    ]
    present = [(rank, pill) for rank, pill, is_there in more if is_there]
    state = Pill(status.state.value, _TONES.get(status.state, "idle"))
    rank = min([_RANKS[status.state], *(rank for rank, _ in present)])
    return Condition((state, *(pill for _, pill in present)), rank, waited_ms, is_late)
