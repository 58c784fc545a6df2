"""Gives changes the keys and fields that the records of a typed snapshot have.

What a change has as bytes is decoded to the columns of the snapshot, as the snapshot's own records were. So a key of a
change equals the same key of the snapshot; what fits no column is in `_rest`, or is a key of bytes, in both alike.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
from msgspec import UNSET, Struct
from msgspec.structs import replace

from compactor.bin_packing import AtMost, pack
from compactor.errors import PortionTooLargeError, SnapshotError
from compactor.model.record import HEADERS, TopicPartition
from compactor.ports import ColumnLayout, Decoded
from compactor.snapshot.typed_table import KEY, TypedTable, layouts_of
from connectors.bootstrap.records import Change
from connectors.bootstrap.snapshot_files import RecordColumns, SnapshotFiles
from connectors.errors import BootstrapError, UnreachableError
from connectors.placeholders import resolve
from connectors.registry.patience import Patience
from connectors.typed.column_types import ValueTypes
from connectors.typed.converter_settings import GIVE, stored_chain
from connectors.typed.decoder import MOST_BYTES, TypeDecoder
from connectors.typed.record_reader import RecordReader

WAIT_S: Final = 5.0
"""How long (s) one poll waits for schema registries; what came is tried again with the next. A table that is closed
meanwhile waits for as long."""
_BYTES: Final = 16 << 20
"""Bytes of keys and values that are decoded at once, as in a batch of a snapshot."""
_BATCH: Final = pa.schema([("key", pa.binary()), ("value", pa.binary()), ("headers", HEADERS)])


class _Side(Struct, frozen=True):
    """What decodes keys, or values: the decoder, and the reader that it reads with."""

    decoder: TypeDecoder
    reader: RecordReader


class TypedChanges:
    """Decodes changes to the columns of `snapshot`, which are `columns`. Used by one thread.

    `given` are settings of converters; what they leave open the manifest says. Raises ConfigError for settings that are
    not allowed or missing, and BootstrapError if nothing says by which converter a side is read.
    """

    def __init__(self, snapshot: SnapshotFiles, columns: pa.Schema, given: Mapping[str, str]) -> None:
        typed = snapshot.manifest.typed
        assert typed is not UNSET, "the snapshot has typed columns"
        self._records = RecordColumns(snapshot)
        chain = stored_chain(typed.converters, given)
        layouts = {
            side: ColumnLayout(layout, {})
            for side, layout in layouts_of(columns).items()
            if getattr(typed, f"{side}_format") == "typed"
        }
        for side in layouts:
            if side not in typed.converters and f"{side}.converter" not in given:
                raise BootstrapError(
                    f"Snapshot {snapshot.id} in {snapshot.place.location} has typed {side}s, and an older keyfold took "
                    f"it: nothing says by which converter the {side}s of changes are read.",
                    f"{GIVE} Or take a new snapshot.",
                )
        self._sides: dict[str, _Side] = {}
        for side, layout in layouts.items():
            reader = ValueTypes(side=side, chain=chain, resolve=resolve).reader()
            self._sides[side] = _Side(TypeDecoder(reader, layout.type, MOST_BYTES), reader)
        own = (KEY,) if "key" in layouts else ()
        self._table = TypedTable(layouts=layouts, metadata=own, strings=frozenset())

    def decoded(self, changes: Sequence[Change]) -> list[Change]:
        """Returns `changes` with typed keys, and fields. Raises UnreachableError if a registry does not answer."""
        for side in self._sides.values():
            side.reader.converter.wait_with(Patience(WAIT_S))
        try:
            packed = pack(changes, AtMost(_BYTES, lambda change: len(change.key) + len(change.value or b"")))
            return [change for some in packed for part in self._parts(some) for change in part]
        except SnapshotError as error:
            cause = error.__cause__ or error
            raise UnreachableError(f"The schema registry does not answer: {cause}", error.action) from error

    def close(self) -> None:
        """Closes the connections to registries."""
        for side in self._sides.values():
            side.decoder.close()

    def _parts(self, changes: Sequence[Change]) -> Iterator[list[Change]]:
        """Yields decoded changes: all at once, or by halves if their columns would take too much memory."""
        if not changes:
            return
        batch = pa.RecordBatch.from_pylist([_row(change) for change in changes], schema=_BATCH)
        try:
            decoded = {side: each.decoder.decode(batch) for side, each in self._sides.items()}
        except PortionTooLargeError:
            half = len(changes) // 2
            yield from self._parts(changes[:half])
            yield from self._parts(changes[half:])
            return
        yield self._with_columns(changes, batch, decoded)

    def _with_columns(
        self, changes: Sequence[Change], batch: pa.RecordBatch, decoded: Mapping[str, Decoded]
    ) -> list[Change]:
        rows = self._table.rows(batch, TopicPartition("", 0), decoded)
        records = self._records.records(self._records.plain(rows))
        return [
            replace(
                change,
                key=record.key if "key" in self._sides else change.key,
                fields=record.fields if change.value is not None and "value" in self._sides else None,
            )
            for change, record in zip(changes, records, strict=True)
        ]


def _row(change: Change) -> dict[str, Any]:
    headers = [{"key": name, "value": value} for name, value in change.headers]
    return {"key": change.key, "value": change.value, "headers": headers}
