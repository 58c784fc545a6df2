"""Puts the columns of a typed snapshot together: what values and keys hold, and what else is known of a record."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
from msgspec import Struct

from compactor.model.record import TopicPartition
from compactor.ports import WHOLE, ColumnLayout, Decoded
from compactor.snapshot import partitions
from compactor.snapshot.data_files import TABLE, text_column, times_of
from compactor.snapshot.partitions import PartitionField
from compactor.snapshot.sections import comparable

KEY: Final = "_key"
METADATA: Final[dict[str, pa.DataType]] = {
    KEY: pa.binary(),
    "_partition": pa.int32(),
    "_offset": pa.int64(),
    "_timestamp": TABLE.field("timestamp").type,
    "_headers": TABLE.field("headers").type,
}
"""The metadata columns that a snapshot may have, and their types; `_key` has the key's own if keys are typed."""
REST: Final = {"value": "_rest", "key": "_rest_key"}
"""By side the column of what fits no other."""
_CELL_BYTES: Final = 16
"""Bytes of a decimal, null or not: no other column has more."""
_BLOOMED: Final = frozenset({pa.binary(), pa.string(), pa.int32(), pa.int64()})
_PLACE: Final = ("key", "partition", "offset")
"""The columns of a record by which rows are sorted after the parts of a typed key: no two have the same."""
_SORTED: Final = (pa.types.is_integer, pa.types.is_string, pa.types.is_date, pa.types.is_timestamp, pa.types.is_binary)


class TypedTable(Struct, frozen=True, kw_only=True):
    """The columns of one typed snapshot. A side without a layout stays bytes; `strings` are those that are UTF-8.

    `appends`: rows stay in the log's order, within `partitions`; otherwise they are by key.
    """

    layouts: Mapping[str, ColumnLayout]
    metadata: tuple[str, ...]
    strings: frozenset[str]
    partitions: tuple[PartitionField, ...] = ()
    appends: bool = False

    @property
    def schema(self) -> pa.Schema:
        """The columns: those of values, metadata, then what fits no column."""
        values = self.layouts.get("value")
        own = [pa.field("value", self._bytes("value"))] if values is None else list(values.type)
        metadata = [pa.field(name, self._key_type if name == KEY else METADATA[name]) for name in self.metadata]
        return pa.schema([*own, *metadata, *(pa.field(REST[side], pa.binary()) for side in self.layouts)])

    def batch(self, records: pa.RecordBatch, tp: TopicPartition, decoded: Mapping[str, Decoded]) -> pa.RecordBatch:
        """Returns the rows of `records` of one partition; what they are sorted by are further columns, the last ones.

        `decoded` is as in `rows`.
        """
        rows = self.rows(records, tp, decoded)
        keys = [*(partitions.values_of(field, rows) for field in self.partitions), *self._sort_keys(records, decoded)]
        schema = rows.schema
        for number, key in enumerate(keys):
            schema = schema.append(pa.field(f"\0{number}", key.type))
        return pa.RecordBatch.from_arrays([*rows.columns, *keys], schema=schema)

    def rows(self, records: pa.RecordBatch, tp: TopicPartition, decoded: Mapping[str, Decoded]) -> pa.RecordBatch:
        """Returns the rows of `records` of one partition, of which `decoded` has the columns by side."""
        values = decoded.get("value")
        whole = [self._plain(records, "value", tp)] if values is None else values.columns.flatten()
        known = {
            "_partition": lambda: records["partition"],
            "_offset": lambda: records["offset"],
            "_timestamp": lambda: times_of(records),
            "_headers": lambda: records["headers"],
            KEY: lambda: self._plain(records, "key", tp) if "key" not in decoded else self._keys(decoded["key"]),
        }
        rests = [_rest(records[side], each) for side, each in decoded.items()]
        arrays = [*whole, *(known[name]() for name in self.metadata), *rests]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    @property
    def keys(self) -> int:
        """The number of columns, the last of a batch, by which rows are sorted."""
        return len(self.partitions) + (0 if self.appends else len(self._key_parts) + len(_PLACE))

    def parts(self, rows: pa.Table) -> Iterator[tuple[str, pa.Table]]:
        """Yields of sorted `rows` those of each partition, without what they are sorted by, and the partition's folder.

        The folder is empty if there are no partitions, and ends with `/` otherwise.
        """
        own = rows.select(range(len(self.schema)))
        if not self.partitions:
            yield "", own
            return
        first = len(self.schema)
        values = rows.columns[first : first + len(self.partitions)]
        for of, part in partitions.split(own, values):
            yield f"{partitions.folder_of(self.partitions, of)}/", part

    def placed(self, decoded: Mapping[str, Decoded]) -> Mapping[str, Decoded]:
        """Returns `decoded` without values that have no partition (`partitions.is_unfit`): they fit no column."""
        values = decoded.get("value")
        if values is None:
            return decoded
        checked = [values.columns.field(at) for at in self._checked_partitions(values.columns.type)]
        unfit = np.any([partitions.is_unfit(each) for each in checked], axis=0) if checked else np.zeros(0, bool)
        if not unfit.any():
            return decoded
        kept = values.columns.take(pa.array(np.arange(len(unfit)), mask=unfit))
        unplaced = {**dict.fromkeys(np.flatnonzero(unfit).tolist(), partitions.UNFIT), **values.unplaced}
        return {**decoded, "value": Decoded(kept, unplaced)}

    def _checked_partitions(self, columns: pa.StructType) -> list[int]:
        named = ((field, columns.get_field_index(field.column)) for field in self.partitions)
        return [at for field, at in named if at >= 0 and partitions.may_be_unfit(field, columns.field(at).type)]

    @property
    def _key_parts(self) -> Sequence[int]:
        """The parts of typed keys by which rows are sorted, if all have an order, else none."""
        parts = list(self.layouts["key"].type) if "key" in self.layouts else []
        has_order = all(any(is_kind(part.type) for is_kind in _SORTED) for part in parts)
        return range(len(parts)) if has_order else ()

    def _sort_keys(self, records: pa.RecordBatch, decoded: Mapping[str, Decoded]) -> list[pa.Array]:
        """Returns what `records` are sorted by: the parts of their keys, the keys' bytes, and their places."""
        if self.appends:
            return []
        parts = [decoded["key"].columns.field(part) for part in self._key_parts]
        return [comparable(each) for each in (*parts, *(records[name] for name in _PLACE))]

    def bloom_paths(self) -> list[str]:
        """Returns the columns of keys that a Bloom filter can be written of."""
        if KEY not in self.metadata:
            return []
        kind = self._key_type
        if pa.types.is_struct(kind):
            return [f"{KEY}.{field.name}" for field in kind if field.type in _BLOOMED and "." not in field.name]
        return [KEY] if kind in _BLOOMED else []

    def row_bytes(self) -> int:
        """Returns about how many bytes a row takes even if nothing is in its columns."""
        return _CELL_BYTES * sum(_leaves(field.type) for field in self.schema)

    @property
    def _key_type(self) -> pa.DataType:
        keys = self.layouts.get("key")
        if keys is None or not keys.type.num_fields:
            return self._bytes("key")
        return keys.type.field(0).type if self._is_plain(keys.type) else keys.type

    def _keys(self, decoded: Decoded) -> pa.Array:
        columns = decoded.columns
        if not columns.type.num_fields:
            return pa.nulls(len(columns), self._key_type)
        return columns.flatten()[0] if self._is_plain(columns.type) else columns

    @staticmethod
    def _is_plain(kind: pa.StructType) -> bool:
        return [field.name for field in kind] == [WHOLE]

    def _bytes(self, side: str) -> pa.DataType:
        return pa.string() if side in self.strings else pa.binary()

    def _plain(self, records: pa.RecordBatch, side: str, tp: TopicPartition) -> pa.Array:
        return text_column(records, side, tp) if side in self.strings else records[side]


def layouts_of(columns: pa.Schema) -> dict[str, pa.StructType]:
    """Returns by side which of `columns`, a snapshot's, are of values and of keys, as `TypedTable` was given them.

    A side that stayed bytes is the only column of its struct.
    """
    own = {*METADATA, *REST.values()}
    layouts = {"value": pa.struct([field for field in columns if field.name not in own])}
    if KEY in columns.names:
        kind = columns.field(KEY).type
        layouts["key"] = kind if pa.types.is_struct(kind) else pa.struct([pa.field(WHOLE, kind)])
    return layouts


def _leaves(kind: pa.DataType) -> int:
    return sum(_leaves(kind.field(place).type) for place in range(kind.num_fields)) or 1


def _rest(data: pa.Array, decoded: Decoded) -> pa.Array:
    """Returns the bytes of what was not decoded, and null for all others."""
    unplaced = decoded.unplaced
    if not unplaced:
        return pa.nulls(len(data), pa.binary())
    return data.take(pa.array([row if row in unplaced else None for row in range(len(data))], pa.int64()))
