"""Follows the ends of all connectors' sources, so that a scrape knows the lag of each without asking a broker.

A connector asks for ends itself only when it is to read on. One that is PAUSED, is FAILED or waits asks for none, and
its source goes on all the same: so the worker asks, for all of them, every LOOK_S.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

import structlog
from confluent_kafka.admin import OffsetSpec
from msgspec import Struct

from compactor.model.record import TopicPartition
from connectors.clock import Clock
from connectors.config.worker import WorkerConfig
from connectors.kafka.admin import Admin
from connectors.kafka.client_settings import ClientSettings, Setting
from connectors.runtime.herder import Herder
from connectors.runtime.supervised_connector import Connector
from connectors.threads import CancellableThread

LOOK_MS: Final = 15_000
"""How often the ends are asked for: as often as Prometheus asks by default."""
FIRST_MS: Final = 3_000
"""How long after the start they are asked for first: connectors are taken over by then, mostly."""
REQUEST_S: Final = 5.0
"""How long (s) one request may take; brokers that do not answer hold up the others' next look."""
KNOWN_MS: Final = 120_000
"""How long (ms) an answer counts: what is older says nothing of now, and the metrics are absent then."""
MOST_LOOKS: Final = 64
"""How many looks of a partition are kept; beyond it neighbours are joined, and times are less exact."""

_log = structlog.get_logger()


class SourceLag(Struct, frozen=True):
    """How many offsets of a partition are not taken in, and since when (ms) there are any; None if there are none."""

    offsets: int
    since_ms: int | None


SourceLagOf: TypeAlias = Callable[[Connector, int], Mapping[TopicPartition, SourceLag]]
"""Returns the lag of a connector's partitions to their sources, at a time in ms."""


class EndHistory(Struct, frozen=True):
    """When a partition's end was first seen to be at least at which offset: (ms, end), both rising. `asked_ms`: last.

    A partition lags since the first look that has shown an end beyond what was taken in.
    """

    asked_ms: int
    end: int
    looks: tuple[tuple[int, int], ...] = ()

    def seen(self, now_ms: int, end: int, taken_in: int) -> EndHistory:
        """Returns it with the look of `now_ms`. Looks at what is `taken_in` by now go, and all if the end fell."""
        looks = tuple(look for look in self.looks if look[1] > taken_in) if end >= self.end else ()
        if end > max(taken_in, looks[-1][1] if looks else 0):
            looks = (*looks, (now_ms, end))
        if len(looks) > MOST_LOOKS:
            joined = tuple((first[0], last[1]) for first, last in zip(looks[::2], looks[1::2], strict=False))
            looks = joined if len(looks) % 2 == 0 else (*joined, looks[-1])
        return EndHistory(now_ms, end, looks)

    def lag(self, taken_in: int) -> SourceLag:
        """Returns the lag of what is `taken_in` to the end."""
        since_ms = next((at_ms for at_ms, end in self.looks if end > taken_in), None)
        return SourceLag(max(0, self.end - taken_in), since_ms if self.end > taken_in else None)


_UNSEEN: Final = EndHistory(0, 0)
"""The history of a partition before its end was seen."""


class SourceEnds:
    """Asks for the ends of the topics that the connectors of `herder` read, in a thread of its own, until `stop`."""

    def __init__(
        self,
        worker: WorkerConfig,
        herder: Herder,
        clock: Clock,
        make_admin: Callable[[Mapping[str, Setting]], Admin] = lambda settings: Admin(settings, REQUEST_S),
    ) -> None:
        self._worker = worker
        self._herder = herder
        self._clock = clock
        self._make_admin = make_admin
        # By equal client settings, those of the last look; used by the thread that looks.
        self._admins: dict[str, Admin] = {}
        self._histories: dict[str, dict[TopicPartition, EndHistory]] = {}  # by connector; replaced, never changed
        self._thread = CancellableThread("source-ends", self._run)

    def start(self) -> None:
        """Begins to ask."""
        self._thread.start()

    def stop(self) -> None:
        """Asks no more; waits for no question that is under way."""
        self._thread.stop()

    def lag(self, connector: Connector, now_ms: int) -> Mapping[TopicPartition, SourceLag]:
        """Returns the lag of each partition that `connector` reads to its source, as far as that is known now."""
        known = self._histories.get(connector.name, {})
        return {
            tp: known[tp].lag(taken_in)
            for tp, taken_in in _taken_in(connector).items()
            if tp in known and now_ms - known[tp].asked_ms <= KNOWN_MS
        }

    def _run(self, stop: threading.Event) -> None:
        pause_ms = FIRST_MS
        while not self._clock.wait_ms(pause_ms, stop):
            pause_ms = LOOK_MS
            try:
                self.look()
            except Exception as error:  # noqa: BLE001  # it is only measured, and looked at again
                _log.debug("ends of the sources are not known", exc_info=error)

    def look(self) -> None:
        """Asks once for the ends of all connectors: those of equal client settings with one request."""
        groups: dict[str, list[Connector]] = {}
        settings: dict[str, Mapping[str, Setting]] = {}
        for connector in self._herder.connectors():
            if _taken_in(connector):
                own = ClientSettings.of(self._worker, connector.spec.config).admin()
                key = json.dumps({name: value for name, value in own.items() if name != "client.id"}, sort_keys=True)
                groups.setdefault(key, []).append(connector)
                settings.setdefault(key, own)
        self._admins = {key: self._admins.get(key) or self._make_admin(settings[key]) for key in groups}
        histories: dict[str, dict[TopicPartition, EndHistory]] = {}
        for key, connectors in groups.items():
            histories |= self._looked(self._admins[key], connectors)
        self._histories = histories

    def _looked(self, admin: Admin, connectors: list[Connector]) -> dict[str, dict[TopicPartition, EndHistory]]:
        """Returns the histories of `connectors` with what the brokers say now; as they were if nothing is said."""
        taken_in = {connector.name: _taken_in(connector) for connector in connectors}
        try:
            asked = frozenset(tp for each in taken_in.values() for tp in each)
            ends = admin.offsets_each(asked, OffsetSpec.latest())
        except Exception as error:  # noqa: BLE001  # a time-out among them; the connectors themselves say it
            _log.debug("ends of the sources are not known", connectors=sorted(taken_in), exc_info=error)
            ends = {}
        now_ms = self._clock.now_ms()
        histories = {}
        for name, positions in taken_in.items():
            known = self._histories.get(name, {})
            kept = {tp: known[tp] for tp in positions if tp in known}
            fresh = {tp: end for tp in positions if isinstance(end := ends.get(tp), int) and end >= 0}
            seen = {tp: kept.get(tp, _UNSEEN).seen(now_ms, end, positions[tp]) for tp, end in fresh.items()}
            histories[name] = {**kept, **seen}
        return histories


def _taken_in(connector: Connector) -> dict[TopicPartition, int]:
    """Returns the offset up to which each partition is taken in, of topics that are read."""
    state = connector.catalog_state
    if state is None:
        return {}
    closed = {topic.topic for topic in state.topics.values() if topic.closed is not None}
    return {log.tp: max(0, log.end) for log in state.logs if log.topic not in closed}
