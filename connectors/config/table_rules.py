"""Checks what a connector file says of tables (`snapshot.table`), and names them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from compactor.storage.locations import is_local
from connectors.config.errors import Fault
from connectors.placeholders import Limits
from connectors.tables.stores import names_code

CATALOG: Final = "iceberg.db"
"""The SQL catalog of Iceberg tables, a file in the snapshot location."""


_CATALOGS: Final = ("rest", "glue", "sql", "hive", "dynamodb", "bigquery")
"""What pyiceberg has; not `in-memory`, which forgets its tables with each commit."""
TOPIC: Final = "${topic}"
"""Stands for the topic in `snapshot.table.name`."""
_NOT_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9_-]")


def iceberg_table(connector: str, template: str, topic: str) -> tuple[str, ...]:
    """Returns the namespace and the name of the Iceberg table of `topic` by `snapshot.table.name`.

    With TOPIC as topic it stays in the place of any topic.
    """
    parts = template.split(".")
    with_namespace = parts if len(parts) > 1 else [connector, *parts]
    text = topic if topic == TOPIC else _NOT_IN_NAMES.sub("_", topic)
    return tuple(text.join(_NOT_IN_NAMES.sub("_", piece) for piece in part.split(TOPIC)) for part in with_namespace)


def is_catalog_file(name: str) -> bool:
    """Returns whether a folder of this name in `snapshot.location` would be in the way of the SQL catalog's files."""
    return name.lower() == CATALOG or name.lower().startswith(f"{CATALOG}-")


def catalog_faults(properties: Mapping[str, str]) -> Iterator[Fault]:
    """Yields the faults of `iceberg.catalog.*`: an unknown type, and properties by which the file names code to run."""
    kind = properties.get("type", "rest")
    if kind.lower() not in _CATALOGS:  # nor a placeholder: the type says which code runs
        yield Fault("type", f'"{kind}" is not a catalog; choose one of {", ".join(_CATALOGS)}.')
    for name in properties:
        if names_code(name):
            yield Fault(name, "is not allowed: it names code to run. Set iceberg.catalog.type.")


def table_faults(
    kind: str, name: str, catalog: Mapping[str, str], location: str | None, of_values: str | None
) -> Iterator[Fault]:
    """Yields what keeps tables of `kind` from being written, and settings that have no effect."""
    if kind != "iceberg":
        given = {"snapshot.table.name": name != TOPIC, "iceberg.catalog.": bool(catalog)}
        without = "has no effect without snapshot.table=iceberg; set that too."
        yield from (Fault(key, without) for key, is_given in given.items() if is_given)
    if kind == "none":
        return
    if of_values == "bytes":
        text = "cannot be: a table has typed columns; remove snapshot.value.format=bytes."
        yield Fault("snapshot.table", f'"{kind}" {text}')
    yield from _place_faults(kind, catalog, location)
    if not all(part.strip() for part in name.split(".")):
        yield Fault("snapshot.table.name", f'"{name}" has an empty part between dots.')


def _place_faults(kind: str, catalog: Mapping[str, str], location: str | None) -> Iterator[Fault]:
    """Yields what keeps tables of `kind` out of the place of snapshots."""
    if location is None:
        yield Fault("snapshot.table", "has no effect without snapshot.location; set that too.")
    elif kind == "iceberg" and not is_local(location) and not catalog:
        text = "cannot be: the SQL catalog is a file in a folder, not in an object store; set iceberg.catalog.type."
        yield Fault("snapshot.table", f'"{kind}" {text}')
    elif kind == "iceberg" and not catalog and "?" in location:  # SQLAlchemy would take the rest for settings
        yield Fault("snapshot.location", "cannot have a question mark: it is in the address of the SQL catalog.")


def fixed_table_faults(name: str, topics: tuple[str, ...] | None, pattern: str | None) -> Iterator[Fault]:
    """Yields a fault if several topics would have the same table."""
    if TOPIC not in name and (pattern is not None or len(topics or ()) > 1):
        text = f'"{name}" is one table for several source topics; put ${{topic}} into the name.'
        yield Fault("snapshot.table.name", text)


def rest_table_faults(catalog: Mapping[str, str], limits: Limits) -> Iterator[Fault]:
    """Yields a fault for a catalog that a request names: the worker would go to any address, with its own rights."""
    if limits.over_rest and catalog:
        yield Fault("iceberg.catalog.", "is for connector files alone, not for connectors made over REST.")


def catalog_file_faults(name: str, location: str | None) -> Iterator[Fault]:
    """Yields a fault if the connector's folder would be in the place of the catalog of all connectors there."""
    if location is not None and is_catalog_file(name):
        yield Fault("name", f'"{name}" is a file of the Iceberg catalog in snapshot.location; choose another name.')
