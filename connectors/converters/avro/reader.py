"""How data with one id of a schema is read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import Struct

from connectors.converters.avro.column_values import AvroColumnReader
from connectors.converters.avro.room import RoomOfRecords
from connectors.converters.avro.slices import PartialReader
from connectors.data.schema import Schema

Convert = Callable[[Any], Any]


class AvroReader(Struct, frozen=True):
    """How data with one id is read: parsed for fastavro, as Connect's schema, and what converts values, if anything.

    `weight` is about how many bytes it takes. `room` checks data before any of it is read. `some`: what reads the
    fields alone that anything looks at; None: all are read. `branches`: what names the branches of unions in what is
    written again with its own schema, if anything. `columns`: what reads many at once; None if nothing can.
    """

    avro: Any
    schema: Schema | None
    convert: Convert | None
    weight: int
    room: RoomOfRecords
    some: PartialReader | None = None
    branches: Convert | None = None
    columns: Callable[[], AvroColumnReader | None] = lambda: None
