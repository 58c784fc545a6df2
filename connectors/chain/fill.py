"""Fills the fields of a value that hold Debezium's placeholder from the value before it (`compaction.fill`).

PostgreSQL leaves values that are stored apart (TOAST) out of a change that does not touch them, as Oracle does with
LOBs. Debezium writes a placeholder in their place, `unavailable.value.placeholder`, in a form that fits the column
(its UnchangedToastedPlaceholder): text, bytes, a list of one of them, the placeholder's bytes as a list of numbers, a
map from it to itself, a UUID made of it.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import uuid
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from compactor.ports import Filled, Headers
from connectors.chain.fill_settings import UNAVAILABLE, placeholder_of
from connectors.chain.spec import ChainSpec, Resolve, made_converter
from connectors.converters.converter import Converter
from connectors.converters.written_fields import WrittenFields
from connectors.data.bounds import check_size
from connectors.data.record import Header
from connectors.errors import RegistryError
from connectors.machine_errors import refuse_machine
from connectors.registry.patience import Patience

_PLAIN: Final = re.compile(rb"[A-Za-z0-9_.:\- ]+")
"""Placeholders that JSON writes as they are, so that bytes without them have none."""
_MARK: Final = 64
"""How many bytes of each form of the placeholder are searched for: enough to tell them from others, and few to compile.
What only begins like it is read, and not filled."""
_WAIT_S: Final = 10.0
"""How long (s) the schema of one value is waited for: the connector's turn waits too, and is tried again later. The
values of a portion may have as many schemas, each answered just in time, so a stop ends the wait."""
_WIDE: Final = 16
"""How many times as long as its text a placeholder may be written: as numbers in JSON, with spaces between them."""


class Placeholder:
    """The forms of one placeholder; `uuid` is that of a column of UUIDs. Raises ValueError for digits that are none."""

    def __init__(self, text: str = UNAVAILABLE) -> None:
        data = placeholder_of(text)
        shown = data.decode("utf-8", "replace")
        # Java's UUID.nameUUIDFromBytes: an MD5 with the marks of version 3.
        self.uuid = str(uuid.UUID(bytes=hashlib.md5(data, usedforsecurity=False).digest(), version=3))
        encoded = base64.b64encode(data).decode()
        self._bytes = data
        self._map = {shown: shown}
        self._numbers = [byte - 256 if byte > 127 else byte for byte in data]
        self._texts = frozenset({shown, encoded, json.dumps(self._map, separators=(",", ":"))})
        self._items = frozenset({shown, encoded, self.uuid, data})
        self.longest = 64 + _WIDE * len(data)
        # Matches the bytes of a value that may hold it, in whatever form; None: that cannot be said.
        self._pattern: str | None = None
        if _PLAIN.fullmatch(data):
            numbers = [",".join(map(str, data)).encode(), ", ".join(map(str, data)).encode()]
            zigzag = b"".join(
                bytes([2 * byte & 0x7F | 0x80, 2 * byte >> 7] if byte > 63 else [2 * byte]) for byte in data
            )
            self._pattern = _any_of([data, encoded.encode(), self.uuid.encode(), zigzag, *numbers])

    def is_in(self, value: Any) -> bool:
        """Returns whether `value`, as WrittenFields has it, is the placeholder."""
        if isinstance(value, str):
            return value in self._texts
        if isinstance(value, bytes):
            return value == self._bytes
        if isinstance(value, list):
            is_one = len(value) == 1 and isinstance(value[0], str | bytes) and value[0] in self._items
            return is_one or value == self._numbers
        return value == self._map

    def may_be_in(self, values: pa.Array) -> pa.Array:
        """Returns which of `values` (binary) may hold it in a field."""
        if self._pattern is None:
            return pc.is_valid(values)
        return pc.fill_null(pc.match_substring_regex(values, self._pattern), fill_value=False)


def _any_of(marks: Sequence[bytes]) -> str:
    """Returns a pattern for bytes with the begin of any of `marks`: one search, in a sixth of the time of six."""
    return "|".join("".join(f"\\x{byte:02x}" for byte in mark[:_MARK]) for mark in marks)


class _Read(NamedTuple):
    """The fields of a value, None if it has none, and the names of those that hold the placeholder."""

    fields: WrittenFields | None
    unavailable: frozenset[str]


class ValueFill:
    """Fills the values of one connector; used by one thread at a time (`compactor.ports.Fill`)."""

    def __init__(self, converter: Converter, placeholder: Placeholder, most: int) -> None:
        self._converter = converter
        self._placeholder = placeholder
        # Bytes of a value that is looked into.
        self._most = most
        # Whether no schema is waited for any more; see `stop_with`.
        self._stopped: Callable[[], bool] = lambda: False

    def stop_with(self, stopped: Callable[[], bool]) -> None:
        """See Fill."""
        self._stopped = stopped

    def close(self) -> None:
        """See Fill."""
        self._converter.close()

    def may_need(self, values: pa.Array) -> pa.Array:
        """See Fill."""
        return self._placeholder.may_be_in(values)

    def fill(self, value: bytes, headers: Headers, earlier: bytes | None, earlier_headers: Headers) -> Filled:
        """See Fill. Raises RegistryError."""
        self._converter.wait_with(Patience(_WAIT_S, stopped=self._stopped))
        own = self._read(value, headers)
        if own is None or own.fields is None or not own.unavailable:
            return Filled(value, left=0, is_unreadable=own is None)
        before = None if earlier is None else self._read(earlier, earlier_headers)
        wanted, left = own.unavailable, len(own.unavailable)
        if before is None or before.fields is None:
            return Filled(value, left)
        try:
            taken = [name for name in wanted if name not in before.unavailable and own.fields.take(name, before.fields)]
            return Filled(own.fields.data(), left - len(taken)) if taken else Filled(value, left)
        except Exception as error:  # noqa: BLE001  # a schema may hold anything: it is the record's own
            refuse_machine(error)
            return Filled(value, left)

    def _read(self, value: bytes, headers: Headers) -> _Read | None:
        """Returns the fields of a value; None if it cannot be read. Raises RegistryError."""
        try:
            check_size(len(value), self._most)
            fields = self._converter.fields_of([Header(*header) for header in headers], value)
            return _Read(fields, frozenset() if fields is None else self._unavailable(fields))
        except RegistryError:
            raise
        except Exception as error:  # noqa: BLE001  # as above
            refuse_machine(error)
            return None

    def _unavailable(self, fields: WrittenFields) -> frozenset[str]:
        longest = self._placeholder.longest
        return frozenset(name for name in fields.names() if self._placeholder.is_in(fields.get(name, longest)))


def value_fill(spec: ChainSpec, placeholder: str, resolve: Resolve) -> ValueFill:
    """Makes what fills the values of a connector, as they are kept: in the output's form. Raises ValueError."""
    converter = made_converter(spec.written_value, resolve, is_key=False)
    return ValueFill(converter, Placeholder(placeholder), spec.most_read)
