"""Checks what a connector file says of the columns of typed snapshots: a given schema, and partitions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from compactor.errors import SnapshotError
from compactor.snapshot.partitions import PartitionField, check_columns
from compactor.snapshot.typed_table import METADATA
from connectors.chain.spec import ClassSpec
from connectors.config.errors import Fault
from connectors.converters.names import CONVERTERS
from connectors.errors import DataError
from connectors.placeholders import Limits, SecretError, check_path, resolve

_KEY: Final = "snapshot.schema.file"
_PARTITIONS: Final = "snapshot.partition.by"
_JSON: Final = "keyfold.Json"


def schema_file_faults(
    path: Path | None,
    location: str | None,
    of_values: str | None,
    written: ClassSpec,
    limits: Limits,
    partitions: tuple[PartitionField, ...],
) -> Iterator[Fault]:
    """Yields what keeps the file from saying the columns of a snapshot. `written`: the converter of kept values."""
    if path is None:
        return
    try:
        check_path(str(path), limits)
    except SecretError as error:
        yield Fault(_KEY, str(error))
        return
    if location is None:
        yield Fault(_KEY, "has no effect without snapshot.location; set that too.")
    if of_values == "bytes":
        yield Fault(_KEY, "has no effect with snapshot.value.format=bytes; remove that.")
    if not _is_plain(written):
        yield Fault(_KEY, "has no effect: values have schemas; it is for keyfold.Json with schemas.enable=false alone.")
    yield from _file_faults(path, partitions)


def partition_faults(
    fields: tuple[PartitionField, ...],
    location: str | None,
    of_values: str | None,
    of_keys: str | None,
    metadata: frozenset[str],
) -> Iterator[Fault]:
    """Yields what keeps snapshots from having partitions."""
    if not fields:
        return
    if location is None:
        yield Fault(_PARTITIONS, "has no effect without snapshot.location; set that too.")
    if of_values == "bytes" and of_keys != "typed":
        yield Fault(_PARTITIONS, "has no effect with snapshot.value.format=bytes; remove that.")
    for field in fields:
        if field.column in METADATA and field.column not in metadata:
            yield Fault(_PARTITIONS, f"names {field.column}, which snapshot.metadata.columns has to have, too.")


def _is_plain(written: ClassSpec) -> bool:
    enabled = resolve(written.texts.get("schemas.enable", "true"), written.limits)
    return CONVERTERS.find(written.name).of.java == _JSON and enabled.lower() == "false"


def _file_faults(path: Path, partitions: tuple[PartitionField, ...]) -> Iterator[Fault]:
    import pyarrow as pa  # which most connectors' files do not need

    from connectors.typed.given_columns import columns_in

    try:
        columns = pa.schema(columns_in(path))
        check_columns(partitions, columns)
        for field in partitions:
            if field.column not in METADATA and field.column not in columns.names:
                yield Fault(_PARTITIONS, f'names {field.column}, and "{path}" has no such field.')
    except SnapshotError as error:
        yield Fault(_PARTITIONS, f"{error.message} {error.action}")
    except DataError as error:
        yield Fault(_KEY, f'"{path}" gives no columns: {error.message} {error.action}'.rstrip())
    except OSError as error:
        yield Fault(_KEY, f'"{path}" cannot be read: {error.strerror or error}.')
