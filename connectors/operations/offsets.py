"""Reads and changes the offsets of a connector: `keyfold resync`, and GET, PATCH and DELETE of offsets over REST.

A change is carried out between T2 and T3 of a take-over (`runtime/offset_change.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from compactor.catalog.catalog import Catalog
from compactor.catalog.owner_lock import OwnerLock
from compactor.catalog.requests import Request
from compactor.errors import KeyfoldError, OffsetChangeError
from compactor.generation.plan import OffsetChange
from compactor.json_types import converted_as
from compactor.model.record import TopicPartition
from compactor.model.state import CatalogState
from connectors.clock import SYSTEM_CLOCK
from connectors.config.connector import ConnectorConfig
from connectors.config.engine_settings import kept_catalog
from connectors.config.selection import select
from connectors.config.stores import connector_storage
from connectors.config.worker import WorkerConfig
from connectors.kafka.client_settings import ClientSettings
from connectors.operations.request_timeout import RequestTimeout
from connectors.operations.standing_result import told
from connectors.operations.worker_request import DEFAULT_TIMEOUT, perform, request
from connectors.runtime.offset_change import MAY_BE_DONE, ChangedLog, Choose, OffsetChanger, asked_by, every_log
from connectors.runtime.request_handler import RESYNC, RESYNC_SINCE
from connectors.runtime.takeover import Fenced, claimed, draw_start, ids_to_have, take_over


class Since(Struct, frozen=True, kw_only=True):
    """What a source is read again from: its first record since `time_ms`, or an `offset`; its start without both."""

    time_ms: int | None = None
    offset: int | None = None


FROM_START: Final = Since()
Report: TypeAlias = Callable[[tuple[ChangedLog, ...]], object]


def _nothing(_: tuple[ChangedLog, ...]) -> None:
    """Reports nothing: the error says that the change stands."""


def kept_state(worker: WorkerConfig, name: str) -> CatalogState:
    """Reads what the catalog of connector `name` says, of which each log's `position` is its offset.

    Raises StorageError, CatalogError.
    """
    return Catalog.open(connector_storage(worker, name), name).state


def resync(
    worker: WorkerConfig,
    connector: ConnectorConfig,
    topic: str | None = None,
    partition: int | None = None,
    timeout: RequestTimeout = DEFAULT_TIMEOUT,
    *,
    accepts_loss: bool = False,
    since: Since = FROM_START,
    report: Report = _nothing,
) -> tuple[ChangedLog, ...]:
    """Begins a generation of all logs from the start of their source (or of those of `topic`, or its `partition`).

    With `since` the generation is read from there on, and a key that does not come again gets a tombstone all the same.
    A live worker is asked for it, in whatever state the connector is; otherwise this process takes over, and the next
    run reads the source. `report` is called with what was changed if an error follows that. Raises OffsetChangeError if
    it cannot be done, and nothing was changed; UsageError if there is no such log, UnreachableError.
    """

    def here(wanted: Request, _lock: OwnerLock) -> dict[str, Any]:
        return {"logs": msgspec.to_builtins(_change(worker, connector, asked_by(wanted), report))}

    kind = RESYNC if since == FROM_START else RESYNC_SINCE
    asked = replace(
        request(kind, topic, partition), accepts_loss=accepts_loss, since_ms=since.time_ms, since_offset=since.offset
    )
    result = perform(worker, connector, asked, timeout, here)
    return converted_as(result.get("logs", ()), tuple[ChangedLog, ...])


def alter_offsets(
    worker: WorkerConfig,
    connector: ConnectorConfig,
    offsets: Mapping[TopicPartition, int | None],
    *,
    accepts_loss: bool = False,
) -> tuple[ChangedLog, ...]:
    """Sets the offsets from which partitions of a connector that no worker runs go on; None is the start of the source.

    Raises as `change_offsets`.
    """
    change = OffsetChange(offsets=dict(offsets), accepts_loss=accepts_loss)
    return change_offsets(worker, connector, lambda _: change)


def reset_offsets(
    worker: WorkerConfig, connector: ConnectorConfig, *, accepts_loss: bool = False
) -> tuple[ChangedLog, ...]:
    """Has each partition of a connector that no worker runs go on from the start, unless it stands there already.

    Raises as `change_offsets`.
    """
    return change_offsets(worker, connector, every_log(anew=False, accepts_loss=accepts_loss))


def change_offsets(worker: WorkerConfig, connector: ConnectorConfig, choose: Choose) -> tuple[ChangedLog, ...]:
    """Takes over a connector that no worker runs, and changes the offsets that `choose` names.

    Raises OffsetChangeError if that cannot be done, and nothing was changed; ConflictError if a worker runs it;
    UnreachableError.
    """
    with claimed(connector_storage(worker, connector.name), connector.name):
        return _change(worker, connector, choose)


def _change(
    worker: WorkerConfig, connector: ConnectorConfig, choose: Choose, report: Report = _nothing
) -> tuple[ChangedLog, ...]:
    """Takes the connector over, without Spark, and changes its offsets; its lock is held by this process."""
    storage = connector_storage(worker, connector.name)
    changed: list[ChangedLog] = []
    clients, clock = ClientSettings.of(worker, connector), SYSTEM_CLOCK
    state = kept_catalog(storage, connector.name).state
    _refuse_other_output(state, connector)
    buckets = ids_to_have(state, connector)

    def change(fenced: Fenced) -> None:
        carry_out(OffsetChanger(*fenced), choose, clock.now_ms(), changed)

    start = draw_start(worker)
    with told(changed, report):
        now_ms = clock.now_ms()
        _, broker = take_over(
            storage, connector, clients, buckets, now_ms, change=change, start=start, changes_rules=True
        )
        broker.close()
    return tuple(changed)


def _refuse_other_output(state: CatalogState, connector: ConnectorConfig) -> None:
    """Raises OffsetChangeError if a topic would have another output than it began with: no run could go on from it."""
    for name in select(connector, state.topics):
        configured, output = connector.output_topic(name), state.topics[name].output
        if configured != output:
            raise OffsetChangeError(
                f"Connector {connector.name}: output.topic is {configured or 'none'} for source topic {name}, but it "
                f"began with {output or 'none'}; nothing was changed.",
                "Set output.topic back, or use a new connector name for the new output topic.",
            )


def carry_out(changer: OffsetChanger, choose: Choose, now_ms: int, changed: list[ChangedLog]) -> None:
    """Changes what `choose` names, and adds to `changed` what is done for good, also if an error follows.

    Raises as `OffsetChanger.change`; the error says so if nothing tells whether the change was made.
    """
    try:
        changer.change(choose, now_ms)
    except KeyfoldError as error:
        if changer.is_in_doubt:
            error.action = f"{MAY_BE_DONE} {error.action}".rstrip()
        raise
    finally:
        changed.extend(changer.changed or ())
