"""Settings of tables: what fits together, and which table a topic has."""

from __future__ import annotations

import pytest

from connectors.config.connector import ConnectorConfig
from connectors.errors import ConfigError
from connectors.placeholders import Limits

BASE = {
    "name": "shop-1",
    "connector.class": "keyfold.CompactedTopic",
    "topics": "db.orders",
    "snapshot.location": "/snapshots",
}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"snapshot.table": "delta", "snapshot.value.format": "bytes"}, "remove snapshot.value.format=bytes"),
        ({"snapshot.table": "delta", "snapshot.string.columns": "value"}, "value has its own type with snapshot.table"),
        ({"snapshot.table": "delta", "snapshot.location": "none"}, "has no effect without snapshot.location"),
        ({"snapshot.table": "iceberg", "snapshot.location": "az://b/p"}, "set iceberg.catalog.type"),
        ({"snapshot.table": "iceberg", "snapshot.location": "s3://b/p"}, "set iceberg.catalog.type"),
        ({"snapshot.table": "iceberg", "snapshot.location": "/a?b"}, "cannot have a question mark"),
        ({"snapshot.table": "delta", "snapshot.table.name": "x"}, "has no effect without snapshot.table=iceberg"),
        ({"iceberg.catalog.type": "rest"}, "has no effect without snapshot.table=iceberg"),
        ({"snapshot.table": "iceberg", "snapshot.table.name": "a..b"}, "has an empty part between dots"),
        ({"snapshot.table": "iceberg", "snapshot.table.name": "x", "topics": "a,b"}, "put ${topic} into the name"),
        ({"snapshot.table": "iceberg", "iceberg.catalog.py-catalog-impl": "os.x"}, "it names code to run"),
        ({"snapshot.table": "iceberg", "iceberg.catalog.py-io-impl": "os.x"}, "it names code to run"),
        ({"snapshot.table": "iceberg", "iceberg.catalog.type": "in-memory"}, "choose one of rest, glue, sql, hive"),
        ({"snapshot.table": "iceberg", "iceberg.catalog.type": "${env:HOME}"}, "choose one of rest, glue, sql, hive"),
        ({"snapshot.table": "hudi"}, "none, delta or iceberg"),
        ({"name": "iceberg.db"}, "a file of the Iceberg catalog"),
        ({"name": "Iceberg.db-journal", "snapshot.table": "delta"}, "a file of the Iceberg catalog"),
    ],
)
def test_what_does_not_fit_is_refused(changes: dict[str, str], said: str) -> None:
    """A fault says what to set."""
    with pytest.raises(ConfigError) as refused:
        ConnectorConfig.model_validate({**BASE, **changes})
    assert said in str(refused.value)


@pytest.mark.parametrize("location", ["gs://b/p", "az://c/p", "abfss://c@account.dfs.core.windows.net/p"])
def test_a_delta_table_may_be_in_any_store(location: str) -> None:
    """Its log needs what each of them has: an object that is made only if it is absent."""
    given = {**BASE, "snapshot.table": "delta", "snapshot.location": location}
    assert ConnectorConfig.model_validate(given).snapshot_table == "delta"


def test_a_catalog_is_for_files_alone() -> None:
    """A request cannot send the worker to a catalog of its choice."""
    given = {**BASE, "snapshot.table": "iceberg", "iceberg.catalog.uri": "http://127.0.0.1:1"}
    assert ConnectorConfig.model_validate(given).iceberg_catalog == {"uri": "http://127.0.0.1:1"}
    with pytest.raises(ConfigError, match="not for connectors made over REST"):
        ConnectorConfig.model_validate(given, context=Limits(over_rest=True))


@pytest.mark.parametrize(
    ("name", "identifier"),
    [
        ("${topic}", ("shop-1", "db_orders")),
        ("sales.${topic}", ("sales", "db_orders")),
        ("lake.sales.t_${topic}", ("lake", "sales", "t_db_orders")),
    ],
)
def test_names_of_tables(name: str, identifier: tuple[str, ...]) -> None:
    """Dots of the setting part namespaces; those of a topic become underscores."""
    given = {**BASE, "snapshot.table": "iceberg", "snapshot.table.name": name}
    assert ConnectorConfig.model_validate(given).iceberg_table("db.orders") == identifier
