"""A record that is looked into: Connect's ConnectRecord, as a sink's transforms get it."""

from __future__ import annotations

from typing import Any, NamedTuple

from msgspec import Struct

from connectors.data.schema import Schema


class Header(NamedTuple):
    """A header: bytes as they were read (`schema` None, `value` bytes or None), or a value that a transform has made.

    A value of a transform comes with `is_new`; the header converter writes it.
    """

    key: str
    value: Any
    schema: Schema | None = None
    is_new: bool = False


class ConnectRecord(Struct, frozen=True):
    """A record between conversion and fold (`org.apache.kafka.connect.sink.SinkRecord`).

    `timestamp` in ms, None without one; `offset` and `partition` are those of the source. A transform returns another
    record (`msgspec.structs.replace`) or None, which drops this one. A key or value that no step reads is not
    converted: it stays bytes, and no step of the chain looks at it (`reads` of each step says what it looks at).
    """

    topic: str
    partition: int
    offset: int
    timestamp: int | None
    key_schema: Schema | None
    key: Any
    value_schema: Schema | None
    value: Any
    headers: tuple[Header, ...] = ()
