"""Changes the columns of an Iceberg table, at a cost that grows with their number.

pyiceberg's own `union_by_name` makes the whole schema again for each column: of 5,000 that takes minutes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyiceberg.table.update import RemoveSchemasUpdate
from pyiceberg.table.update.schema import UpdateSchema

MOST_UNUSED: Final = 5_000
"""Columns that all schemas have together which no version of the table needs. Each 1,000 take 130 KB of the metadata,
which a commit reads five times."""


class _Change(NamedTuple):
    path: tuple[str, ...]
    type: pa.DataType
    is_new: bool


def evolve(update: UpdateSchema, old: pa.Schema, new: pa.Schema) -> None:
    """Adds to `update` the columns and fields of `new` that `old` lacks, and the types that are wider in `new`."""
    changes = list(_in_struct((), pa.struct(list(old)), pa.struct(list(new))))
    wanted = Catalog._convert_schema_if_needed(
        pa.schema([(str(number), change.type) for number, change in enumerate(changes)])
    )
    for change, field in zip(changes, wanted.fields, strict=True):
        if change.is_new:
            update.add_column(change.path, field.field_type)
        else:
            update.update_column(change.path, field_type=field.field_type)


def _in_struct(path: tuple[str, ...], old: pa.StructType, new: pa.StructType) -> Iterator[_Change]:
    before = {field.name: field.type for field in old}
    for field in new:
        here = (*path, field.name)
        if field.name not in before:
            yield _Change(here, field.type, is_new=True)
        else:
            yield from _in_type(here, before[field.name], field.type)


def _in_type(path: tuple[str, ...], old: pa.DataType, new: pa.DataType) -> Iterator[_Change]:
    if old == new:
        return
    if pa.types.is_struct(new):
        yield from _in_struct(path, old, new)
    elif pa.types.is_list(new):
        yield from _in_type((*path, "element"), old.value_type, new.value_type)
    elif pa.types.is_map(new):
        yield from _in_type((*path, "value"), old.item_type, new.item_type)
    else:
        yield _Change(path, new, is_new=False)


def unused_schemas(table: Table, most: int = MOST_UNUSED) -> RemoveSchemasUpdate | None:
    """Returns what removes the schemas that no snapshot of `table` has; None if they have at most `most` columns."""
    metadata = table.metadata
    used = {metadata.current_schema_id, *(snapshot.schema_id for snapshot in metadata.snapshots)}
    unused = [schema for schema in metadata.schemas if schema.schema_id not in used]
    if sum(len(schema.field_ids) for schema in unused) <= most:
        return None
    return RemoveSchemasUpdate.model_validate({"schema-ids": [schema.schema_id for schema in unused]})
