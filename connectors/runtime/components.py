"""Makes what one run of a connector works with, from its take-over to its stop."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from compactor.catalog.catalog import Catalog
from compactor.clean.cleaner import Cleaner
from compactor.clean.rewriter import Rewriter
from compactor.engine import Engine
from compactor.maintenance import Maintenance
from compactor.model.log import lost_by
from compactor.ports import Fill
from compactor.publish.changelog import Changelog
from compactor.publish.executors import PublishExecutor
from compactor.quarantine.quarantine import QuarantineManager
from compactor.snapshot.manifest import TypedInputs
from compactor.snapshot.snapshots import Snapshots
from compactor.snapshot.typed_table import METADATA
from compactor.storage.base import Storage
from connectors.chain.spec import ChainSpec
from connectors.clock import Clock
from connectors.config.connector import ConnectorConfig
from connectors.config.engine_settings import engine_settings
from connectors.errors import ConfigError, DataError
from connectors.placeholders import resolve
from connectors.runtime.kafka_broker import KafkaBroker
from connectors.runtime.open_tables import tables_of
from connectors.runtime.request_handler import RequestHandler
from connectors.runtime.takeover import Ownership

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class TaskComponents(NamedTuple):
    """The catalog and the brokers that the take-over gave, and what works on them."""

    catalog: Catalog
    broker: KafkaBroker
    engine: Engine
    maintenance: Maintenance
    requests: RequestHandler


def fill_of(connector: ConnectorConfig) -> Fill | None:
    """Makes what fills placeholders in the connector's values; None if nothing does. Raises ValueError."""
    if connector.fill == "none":
        return None
    from connectors.chain.fill import value_fill  # converters, which most connectors do not need

    return value_fill(connector.chain_spec(), connector.unavailable, resolve)


def schema_columns(connector: ConnectorConfig) -> str | None:
    """Returns the columns of `snapshot.schema.file`; None without one. Raises ConfigError if it is another by now."""
    path = connector.snapshot_schema_file
    if path is None:
        return None
    from connectors.typed.given_columns import columns_text

    try:
        return columns_text(path)
    except (DataError, OSError) as error:
        raise ConfigError(
            f"Connector {connector.name}: snapshot.schema.file={path} gives no columns: {str(error).rstrip('.')}.",
            "Mend the file, then restart the connector.",
        ) from error


def typed_of(
    connector: ConnectorConfig,
    chain: ChainSpec,
    place: Storage | None = None,
    stopped: Callable[[], bool] = lambda: False,
    kept: str = "",
) -> TypedInputs | None:
    """Makes what a connector's typed snapshots are made by; None if it has none, or has them of bytes.

    `kept` is the URL of the connector's folder in storage.location.
    """
    if connector.snapshot_location is None:
        return None
    given = {"key": connector.snapshot_key_format, "value": connector.format_of_values}
    written = {"key": chain.written_key, "value": chain.written_value}
    by_default = frozenset(
        side
        for side, chosen in given.items()
        if chosen is None and not connector.snapshot_string_columns and not written[side].is_bytes
    )
    typed = by_default.union(side for side, chosen in given.items() if chosen == "typed")
    if not typed:
        return None
    from connectors.typed.column_types import ValueTypes  # converters, which most connectors do not need

    columns = {"value": schema_columns(connector)}
    sides = {side: ValueTypes(side=side, chain=chain, resolve=resolve, given=columns.get(side)) for side in typed}
    metadata = tuple(name for name in METADATA if name in connector.snapshot_metadata_columns)
    return TypedInputs(
        key=sides.get("key"),
        value=sides.get("value"),
        metadata=metadata,
        by_default=by_default,
        tables=tables_of(connector, place, stopped, kept),
        partitions=connector.snapshot_partition_by,
    )


def assemble(
    spark: SparkSession,
    connector: ConnectorConfig,
    chain: ChainSpec,
    storage: Storage,
    snapshot_storage: Storage | None,
    clock: Clock,
    owned: Ownership,
) -> TaskComponents:
    """Makes the components of a run on what was taken over. Nothing of them runs yet."""
    catalog, broker = owned
    settings, now_ms = engine_settings(connector), clock.now_ms
    # Set by an interrupt of maintenance: from then on no failure is taken for a file's.
    stop = threading.Event()
    quarantine = QuarantineManager(catalog, stop)
    publish = PublishExecutor(spark, storage, broker, stop.is_set)
    changelog = Changelog(catalog, broker, publish, quarantine, now_ms)
    engine = Engine(catalog, broker, settings, changelog, fill_of(connector))
    engine.counters.add("offsets_lost", sum(map(lost_by, catalog.state.logs)))
    snapshots = Snapshots(spark, catalog, quarantine, broker, settings, snapshot_storage, engine.positions.uncertain)
    rewriter = Rewriter(spark, storage, stop.is_set, local_records=settings.fold.local_max_records)
    cleaner = Cleaner(rewriter, catalog, quarantine, settings, engine.counters, engine.positions.uncertain, now_ms)
    maintenance = Maintenance(cleaner, snapshots, catalog, quarantine, engine.counters, stop)
    snapshots.typed = typed_of(connector, chain, snapshot_storage, stop.is_set, storage.url(""))
    snapshots.begin()
    requests = RequestHandler(storage, catalog, maintenance, clock, broker.check_visible, engine.running)
    return TaskComponents(catalog, broker, engine, maintenance, requests)
