"""Encodes what the records of one task are, for the worker, which makes the columns of all tasks."""

from __future__ import annotations

import base64

import pyarrow as pa
from msgspec import Struct

from connectors.typed.shape import ValueShape


class SurveyedType(Struct, frozen=True):
    """A type (Arrow's IPC in Base64), or the shape of values without a schema.

    `schemas` are some of those that have the type (`kept_schemas`), `more`: there are others.
    """

    type: str | None = None
    shape: ValueShape | None = None
    schemas: tuple[str, ...] = ()
    more: bool = False


def text_of(kind: pa.DataType) -> str:
    """Returns a type as text: Arrow's IPC in Base64."""
    return base64.b64encode(pa.schema([pa.field("type", kind)]).serialize().to_pybytes()).decode()


def type_from(text: str) -> pa.DataType:
    """Returns what `text_of` was given. Raises whatever Arrow raises for other texts."""
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text))).field(0).type
