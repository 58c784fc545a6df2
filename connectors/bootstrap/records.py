"""Defines what readers of a table get: the records of its snapshot, and the changes that follow in the output topic."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from compactor.digits import whole
from compactor.model.record import OWN_HEADERS
from connectors.sinks.encode import TIMESTAMP
from connectors.sinks.output_reader import Headers, keyfold_source

NamedHeaders = tuple[tuple[str, Any], ...]


class TableRecord(Struct, frozen=True):
    """The last record of a key.

    `partition` and `offset` are those of the source topic, None if they are not known. `timestamp` is in ms since the
    epoch. `fields` are the columns of a typed snapshot, by name: `value` is None then.
    """

    key: Any
    value: bytes | None
    partition: int | None = None
    offset: int | None = None
    timestamp: int | None = None
    headers: NamedHeaders = ()
    fields: dict[str, Any] | None = None


class Change(Struct, frozen=True):
    """A record of the output topic: `value` None deletes `key`.

    `partition` and `offset` are those of the output topic, `timestamp` is in ms since the epoch. `value` is as it is
    there, and so is `key`, unless the table's snapshot has typed keys: then it is one. `fields` are the columns of the
    value, by name, if the snapshot has typed values.
    """

    partition: int
    offset: int
    timestamp: int
    key: Any
    value: bytes | None
    headers: NamedHeaders
    fields: dict[str, Any] | None = None

    @property
    def record(self) -> TableRecord | None:
        """The record as a table has it, without keyfold's own headers; None if it deletes its key."""
        if self.value is None:
            return None
        source = keyfold_source(self.headers)
        sent = next((value for name, value in self.headers if name == TIMESTAMP), None)
        sent_ms = None if sent is None else whole(sent)
        return TableRecord(
            key=self.key,
            value=self.value if self.fields is None else None,
            fields=self.fields,
            partition=self.partition if source is None else source[1],
            offset=None if source is None else source[2],
            timestamp=self.timestamp if sent_ms is None else sent_ms,
            headers=tuple(header for header in self.headers if not header[0].startswith(OWN_HEADERS)),
        )


def comparable(key: Any) -> Any:
    """Returns what a dict finds a typed key by, however it is nested; bytes, texts and numbers are their own."""
    if isinstance(key, dict):
        return tuple(sorted((name, comparable(part)) for name, part in key.items()))
    if isinstance(key, list | tuple):
        return tuple(map(comparable, key))
    return "NaN" if isinstance(key, float) and key != key else key  # noqa: PLR0124  # NaN equals nothing


def change_of(message: Any, headers: Headers) -> Change:
    """Makes a change of a consumed message, of which `headers` were asked already."""
    return Change(
        message.partition(),
        message.offset(),
        message.timestamp()[1],
        message.key() or b"",
        message.value(),
        tuple(headers),
    )
