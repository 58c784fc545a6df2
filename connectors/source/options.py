"""What one connector reads, and how: made once from its configuration, pickled into reading tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
from msgspec.structs import replace

from compactor.ingest.ingest import Intake
from compactor.model.state import BY_OFFSET, OF_TOPIC
from connectors.chain.spec import ChainSpec, is_plain
from connectors.chain.task_growth import GROWTH_MAX
from connectors.config.selection import pattern
from connectors.config.topics import TopicPattern
from connectors.data.bounds import MOST_READ
from connectors.kafka.client_settings import ClientSettings
from connectors.source.plan import TopicOffsets
from connectors.source.source_errors import left_out

if TYPE_CHECKING:
    from compactor.model.state import CatalogState
    from connectors.config.connector import ConnectorConfig

_REQUEST_S: Final = 10.0
"""How long (s) one request may take at most; a connector with a shorter timeout waits no longer than that."""

ORDERED_MAX: Final = 1_000_000
"""Offsets of a portion whose records have another order than their offsets, or are filled. The worker's own process
holds 50 bytes of each of them while it decides which are late, and the values of those that it fills; fewer would look
through the log for a portion's keys more often."""

STORE_INTERVAL_MS: Final = 500
"""The shortest time between two micro-batches on an object store: each takes some ten requests, which are paid for."""


class Selection(msgspec.Struct, frozen=True):
    """Which topics are read: those named, or those that match a pattern."""

    topics: tuple[str, ...] = ()
    pattern: TopicPattern | None = None


class ReadLimits(msgspec.Struct, frozen=True):
    """Upper bounds: offsets and tasks of a micro-batch (`None`: no bound of offsets), bytes of an Arrow batch.

    The bytes are of key, value and headers; one record is never cut. `growth_bytes`: those that a task writes beyond
    what it has read, after which it ends early.
    """

    max_offsets: int | None = None
    tasks_max: int = 2
    batch_bytes: int = 16 << 20
    growth_bytes: int = GROWTH_MAX


class Timeouts(msgspec.Struct, frozen=True):
    """How long to wait, in seconds.

    `timeout`: without progress for so long, a read or a plan fails. `metadata_age`: topics, partitions and ids are
    asked for again after it, later if that takes long (`ask_again_ms`). `look`: after so long without progress a read
    asks the brokers why.
    """

    timeout: float = 60.0
    metadata_age: float = 5.0
    look: float = 1.0

    @property
    def request(self) -> float:
        """How long (s) one request to the brokers may take."""
        return min(_REQUEST_S, self.timeout)


class SourceOptions(msgspec.Struct, frozen=True):
    """What one connector reads, and how. Its repr shows no client setting.

    `starts`: the first offsets of known topics; others begin at their log starts. `closed`: topics of `starts` that
    were gone before and are not waited for. `skip_lost`: on.data.loss is `skip`. `interval_ms`: the shortest time
    between two micro-batches. `pinned`: it ends at what is stable when it begins. `chain`: what is done with each
    record, if anything.
    """

    connector: str
    clients: ClientSettings
    selection: Selection
    intake: Intake
    starts: dict[str, TopicOffsets] = {}
    closed: frozenset[str] = frozenset()
    limits: ReadLimits = ReadLimits()
    timeouts: Timeouts = Timeouts()
    skip_lost: bool = False
    interval_ms: int = 0
    pinned: bool = False
    chain: ChainSpec | None = None

    def of_batch(self, number: int, arrived_ms: int) -> SourceOptions:
        """Returns what a task needs of them to read micro-batch `number` of the connector, planned at `arrived_ms`."""
        intake = self.intake.of_batch(number, arrived_ms)
        return replace(self, selection=Selection(), starts={}, closed=frozenset(), intake=intake)


def source_options(
    connector: ConnectorConfig,
    clients: ClientSettings,
    state: CatalogState,
    tasks_max: int,
    intake: Intake,
    *,
    pinned: bool = False,
    chain: ChainSpec | None = None,
) -> SourceOptions:
    """Makes the options of `connector`; positions begin at the end of the catalog."""
    return SourceOptions(
        connector=connector.name,
        clients=clients,
        selection=_selection(connector, left_out(state)),
        starts=starts(state),
        closed=frozenset(name for name, topic in state.topics.items() if topic.closed is not None),
        limits=ReadLimits(max_offsets=_max_offsets(connector), tasks_max=tasks_max),
        skip_lost=connector.on_data_loss == "skip",
        intake=intake,
        interval_ms=_interval_ms(connector, intake),
        pinned=pinned,
        chain=None if chain is None or is_plain(chain) else replace(chain, most_read=_most_read(clients)),
    )


def _max_offsets(connector: ConnectorConfig) -> int | None:
    """Returns max.offsets.per.trigger, at most ORDERED_MAX if records have another order, or are filled."""
    most = connector.max_offsets_per_trigger
    is_looked_up = connector.order != BY_OFFSET or connector.fill != "none" or connector.scope == OF_TOPIC
    return min(most or ORDERED_MAX, ORDERED_MAX) if is_looked_up else most


def _most_read(clients: ClientSettings) -> int:
    """Returns the bytes of a key or value that a chain reads: as many as a fetch of one partition, if that is more."""
    return max(MOST_READ, int(clients.consumer().get("max.partition.fetch.bytes", 0)))


def _interval_ms(connector: ConnectorConfig, intake: Intake) -> int:
    """Returns trigger.interval.ms; on an object store at least STORE_INTERVAL_MS, unless the file sets it."""
    on_store = not intake.target.storage.is_folder and "trigger.interval.ms" not in connector.given
    return STORE_INTERVAL_MS if on_store else connector.trigger_interval_ms


def starts(state: CatalogState) -> dict[str, TopicOffsets]:
    """Returns the next offset to read of every partition, of closed topics too: one that is back goes on from there."""
    return {
        name: TopicOffsets(topic.topic_id, {log.partition: log.end for log in state.logs_of(name)})
        for name, topic in state.topics.items()
    }


def _selection(connector: ConnectorConfig, closed: frozenset[str]) -> Selection:
    """Selects what is read: never the topics `closed`."""
    if connector.topics is not None:
        return Selection(topics=tuple(name for name in connector.topics if name not in closed))
    matched = pattern(connector)
    return Selection(pattern=replace(matched, never=matched.never | closed))
