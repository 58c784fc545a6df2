"""`keyfold describe`: what a connector has taken in, sent and kept; without Spark, also beside a live worker."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import structlog

from connectors.cli.options import ConnectorArgument, JsonOption, WorkerOption, worker_of
from connectors.cli.output import say, say_json
from connectors.clock import SystemClock

if TYPE_CHECKING:
    from pathlib import Path

    from compactor.catalog.catalog import Catalog
    from compactor.storage.base import Storage
    from connectors.cli.views.describe import Description, OwnerDescription
    from connectors.config.connector import ConnectorConfig
    from connectors.config.errors import FaultyConfigError
    from connectors.config.worker import WorkerConfig
    from connectors.operations.source_ends import Ends

log = structlog.get_logger(__name__)


def describe(connector: ConnectorArgument, as_json: JsonOption = False, worker: WorkerOption = None) -> None:
    """Shows a connector's state, offsets, lag, runs and newest snapshots; needs no broker, but asks one for the lag."""
    config = worker_of(worker)
    from compactor.catalog.catalog import Catalog
    from connectors.cli.views.describe import text
    from connectors.config.engine_settings import other_snapshots
    from connectors.config.errors import FaultyConfigError
    from connectors.config.files import load_valid_part
    from connectors.config.stores import connector_storage
    from connectors.operations.source_ends import source_ends
    from connectors.source.source_errors import left_out

    try:
        settings, faults = load_valid_part(connector, config)
    except FaultyConfigError as error:
        settings, faults = _by_file_name(connector, config, error), None
    storage = connector_storage(config, settings.name)
    catalog = Catalog.open(storage, settings.name)
    if faults is not None and catalog.version == 0:
        raise faults
    if faults is not None:
        log.warning("connector file is not valid; described without the settings that are not", error=str(faults))
    closed = left_out(catalog.state)  # where their names end now says nothing of our offsets
    ends = source_ends(config, settings, [log.tp for log in catalog.state.logs if log.topic not in closed])
    now_ms = SystemClock().now_ms()
    others = other_snapshots(config, settings, catalog.state)
    description = describing(catalog, storage, settings, ends, others, now_ms)
    if as_json:
        say_json(description)
    else:
        say(text(description, now_ms, storage.location))


def _by_file_name(path: Path, worker: WorkerConfig, faults: FaultyConfigError) -> ConnectorConfig:
    """Returns the connector of a file that says nothing usable: with the topics that are kept of it, and defaults.

    It may run with what the file said before. Its name is the one in the file, else the file's own. Raises `faults` if
    nothing is kept under that name, or no file is there.
    """
    from compactor.catalog.catalog import Catalog
    from connectors.config.connector import ConnectorConfig
    from connectors.config.fields import CONNECTOR_CLASS, is_connector_name
    from connectors.config.files import other_file
    from connectors.config.stores import connector_storage

    name = other_file(path).name or path.stem
    if not path.is_file() or not is_connector_name(name):
        raise faults
    catalog = Catalog.open(connector_storage(worker, name), name)
    topics = sorted({kept.topic for kept in catalog.state.logs})
    if not topics:
        raise faults
    log.warning(
        "connector file cannot be read; described by its file's name, with default settings",
        connector=name,
        error=str(faults),
    )
    given = {"name": name, "connector.class": CONNECTOR_CLASS, "topics": ",".join(topics), "output.topic": "none"}
    return ConnectorConfig.model_validate(given)


def describing(
    catalog: Catalog,
    storage: Storage,
    connector: ConnectorConfig,
    ends: Ends,
    others: Mapping[str, tuple[str, ...]],
    now_ms: int,
) -> Description:
    """Describes `connector` from its catalog, its folder, the broker's answer, and snapshots of `others` by topic."""
    from compactor.snapshot import location
    from connectors.cli.views import describe as describe_view
    from connectors.config.engine_settings import engine_settings
    from connectors.config.secrets import logged_text
    from connectors.runtime import status

    changed = describe_view.changed(catalog.state, ends.ids)
    offsets = {tp: end for tp, end in ends.offsets.items() if tp.topic not in changed}
    return describe_view.Description(
        format_version=describe_view.FORMAT,
        connector=connector.name,
        catalog_id=catalog.state.catalog_id,
        catalog_version=catalog.version,
        owner=_owner(catalog, storage),
        status=describe_view.status(status.read(storage), now_ms),
        broker_error=logged_text(ends.error) if ends.error else None,
        snapshots=location.read_note(storage),
        topics=describe_view.topics(catalog.state, others, changed),
        partitions=describe_view.partitions(catalog.state, offsets, engine_settings(connector), now_ms),
    )


def _owner(catalog: Catalog, storage: Storage) -> OwnerDescription:
    from compactor.catalog import owner_lock
    from connectors.cli.views.describe import OwnerDescription

    return OwnerDescription(
        alive=owner_lock.is_alive(storage), name=owner_lock.shown(catalog.state.owner), epoch=catalog.state.epoch
    )
