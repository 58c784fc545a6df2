"""Reads the columns that a file gives to plain JSON (`snapshot.schema.file`): an Avro schema of a record.

Avro's schemas have what columns need and JSON's lack: widths of numbers, decimals, dates, times with their unit.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa

from compactor.storage.no_links import open_below
from connectors.converters.avro.schemas import FromAvro
from connectors.data.schema import UNION, Schema, Type
from connectors.errors import DataError
from connectors.machine_errors import refuse_machine
from connectors.rejection import reason_of
from connectors.typed.arrow_types import is_leaf, type_of
from connectors.typed.kinds import text_of

LONGEST: Final = 1 << 20
"""Bytes of the file: 200 for each of `arrow_types.MOST_COLUMNS`."""


def columns_text(path: Path) -> str:
    """Returns the columns of the schema in the file `path`, as `kinds.text_of`. Raises DataError, OSError."""
    return text_of(columns_in(path))


def columns_in(path: Path) -> pa.StructType:
    """Returns the columns of the schema in the file `path`. Raises DataError, OSError."""
    return columns_of(_read(path))


def columns_of(text: bytes) -> pa.StructType:
    """Returns the columns of an Avro schema. Raises DataError for one of which plain JSON cannot be."""
    try:
        schema = FromAvro(names_logical=True).schema(msgspec.json.decode(text))
        if schema.type is not Type.STRUCT or schema.name == UNION or not schema.fields:
            raise DataError("It is no record with fields.")
        _check(schema, ())
        columns = type_of(schema)
    except DataError:
        raise
    except Exception as error:  # noqa: BLE001  # a schema may hold anything
        refuse_machine(error)
        raise DataError(f"It is no Avro schema: {reason_of(error)}.") from None
    assert isinstance(columns, pa.StructType)
    return columns


def _read(path: Path) -> bytes:
    place = path.resolve()
    with open(open_below("/", str(place).removeprefix("/")), "rb") as file:  # noqa: PTH123  # of a descriptor
        if not place.is_file():
            raise DataError("It is no regular file.")
        data = file.read(LONGEST + 1)
    if len(data) > LONGEST:
        raise DataError(f"It has more than {LONGEST >> 20} MiB.")
    return data


def _check(schema: Schema, path: tuple[str, ...]) -> None:
    """Raises DataError for a type that no value of JSON has."""
    said: Any = None
    if schema.name == UNION:
        said = "union of several types"
    elif is_leaf(schema) and pa.types.is_binary(type_of(schema)):
        said = "bytes"
    if said is not None:
        raise DataError(f"{'.'.join(path)[:200]}: JSON has no {said}.", "Use a string, or a type with null alone.")
    for field in schema.fields or ():
        _check(field.schema, (*path, field.name))
    if schema.value_schema is not None:
        _check(schema.value_schema, (*path, "element"))
