"""Says which partition a row of a snapshot belongs to (`snapshot.partition.by`), and its folder, in Hive's manner.

`country` has a partition for each value of that column, `day(created)` one for each day. Transforms are Iceberg's.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from difflib import get_close_matches
from itertools import pairwise
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from compactor.errors import SnapshotError

MOST_PARTITIONS: Final = 1_000
"""Partitions of a snapshot, each of which has a file of its own: as many as Hive allows one job."""
NULL: Final = "__HIVE_DEFAULT_PARTITION__"
"""What stands in a folder's name for null."""
IDENTITY: Final = "identity"
UNFIT: Final = (
    f"The value by which it would have its partition is {NULL}, too long for the name of a folder, or a date outside "
    "of years 1 to 9999."
)
_UNITS: Final = {"year": "Y", "month": "M", "day": "D", "hour": "h"}
_SETTING: Final = "snapshot.partition.by"
_SAID: Final = re.compile(r"(?:(\w+)\(([^()]+)\)|([^()]+))")
_NOT: Final = frozenset({"_key", "_partition", "_offset", "_headers", "_rest", "_rest_key"})
"""Columns without partitions: each row has another value, or tables tell rows by them."""
_LONGEST_NAME: Final = 100
_LONGEST_VALUE: Final = 150
"""Bytes in a folder's name, of which file systems take 255."""
_DAYS: Final = (-719_162, 2_932_897)
"""Days from 1970 to the first of year 1, and to the first of year 10000."""
_ESCAPED: Final = "\x00-\x1f\x7f\"#%'*/:=?\\\\{}\\[\\]^"
"""What Hive writes as `%` and two digits."""


class PartitionField(NamedTuple):
    """One level of partitions: a column, and the transform of its values."""

    column: str
    transform: str = IDENTITY

    def __str__(self) -> str:
        return self.column if self.transform == IDENTITY else f"{self.transform}({self.column})"

    @property
    def name(self) -> str:
        """The name of the partition: the column's own, or with the transform."""
        return self.column if self.transform == IDENTITY else f"{self.column}_{self.transform}"


def parsed(text: str) -> tuple[PartitionField, ...]:
    """Returns the fields that `snapshot.partition.by` says. Raises ValueError."""
    fields: list[PartitionField] = []
    for part in text.split(","):
        said = _SAID.fullmatch(part.strip())
        if said is None:
            raise ValueError(f'"{part.strip()}" is neither a column nor day(COLUMN)')
        transform, inner, plain = said.groups()
        if transform is not None and transform.lower() not in _UNITS:
            raise ValueError(f"there is no {transform}(…); there are {', '.join(_UNITS)}")
        field = PartitionField(plain) if transform is None else PartitionField(inner.strip(), transform.lower())
        if field.column in _NOT:
            raise ValueError(f'there are no partitions by "{field.column}"')
        if len(field.name.encode()) > _LONGEST_NAME or re.search(f"[{_ESCAPED}]", field.name):
            raise ValueError(f'"{field.name[:_LONGEST_NAME]}" cannot be a folder\'s name')
        fields.append(field)
    if len({field.name.lower() for field in fields}) < len(fields):
        raise ValueError("a partition is named twice")
    return tuple(fields)


def check_columns(fields: Sequence[PartitionField], schema: pa.Schema) -> None:
    """Raises SnapshotError if a column has a type without such partitions; one that is not there counts as null."""
    for field in fields:
        if field.column in schema.names and not _has(schema.field(field.column).type, field.transform):
            raise SnapshotError(
                f"No typed snapshot can be taken by {_SETTING}={field}: that column is of type "
                f"{str(schema.field(field.column).type)[:100]}.",
                "A column of text, whole numbers, dates or booleans can be named, year(…) to day(…) take dates and "
                "timestamps, hour(…) timestamps. For plain JSON snapshot.schema.file says types.",
            )
        if field.transform != IDENTITY and field.name in schema.names:
            raise SnapshotError(
                f"No typed snapshot can be taken by {_SETTING}={field}: there is a column {field.name}, which readers "
                "take from the folders.",
                f"Set another {_SETTING}.",
            )


def check_names(fields: Sequence[PartitionField], names: Collection[str], topic: str) -> None:
    """Raises SnapshotError if a column is not among `names`, those that records of `topic` have or had.

    Otherwise a misspelt name would have all rows in one partition, that of null.
    """
    for field in fields:
        if field.column not in names:
            lowered = {name.lower(): name for name in names if len(name) <= _LONGEST_NAME}
            nearest = get_close_matches(field.column.lower(), lowered, 1)
            hint = f"; did you mean {lowered[nearest[0]]}?" if nearest else "."
            raise SnapshotError(
                f"No typed snapshot of topic {topic} can be taken by {_SETTING}={field}: no record has a field "
                f"{field.column}{hint}",
                f"Correct {_SETTING}. If records get that field later, set it then; a topic without it needs a "
                "connector of its own.",
            )


def values_of(field: PartitionField, rows: pa.RecordBatch) -> pa.Array:
    """Returns the partition of each row: the column's value, or years, months, days or hours since 1970."""
    if field.column not in rows.schema.names:
        return pa.nulls(rows.num_rows, pa.int64())
    column = rows[field.column]
    if field.transform == IDENTITY:
        return column
    times = column.cast(pa.timestamp("s")) if pa.types.is_date(column.type) else column
    numbers = times.to_numpy(zero_copy_only=False).astype(f"datetime64[{_UNITS[field.transform]}]").astype(np.int64)
    return pa.array(numbers, mask=column.is_null().to_numpy(zero_copy_only=False))


def folder_of(fields: Sequence[PartitionField], values: Sequence[Any]) -> str:
    """Returns the folder of a partition; `values` are those of its `fields` (`values_of`)."""
    return "/".join(f"{field.name}={text_of(field, value)}" for field, value in zip(fields, values, strict=True))


def text_of(field: PartitionField, value: Any) -> str:
    """Returns a value as the name of its folder has it."""
    if value is None:
        return NULL
    if field.transform != IDENTITY:
        return str(np.array(value, f"datetime64[{_UNITS[field.transform]}]")).replace("T", "-")
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return re.sub(f"[{_ESCAPED}]", lambda match: f"%{ord(match[0]):02X}", text)


def without_values(path: str) -> str:
    """Returns the path of a file with `…` for each value that the name of a folder has."""
    return re.sub(r"(?<=/)([^/=]+=)[^/]+(?=/)", r"\1…", path)


def may_be_unfit(field: PartitionField, kind: pa.DataType) -> bool:
    """Returns whether some values of a column of `kind` have no partition."""
    return pa.types.is_string(kind) or (pa.types.is_date32(kind) and field.transform == IDENTITY)


def is_unfit(values: pa.Array) -> NDArray[np.bool_]:
    """Returns of each text or date whether it has no partition.

    No folder has a long text in its name, nor the one that stands for null. Python has no date outside of years 1 to
    9999, such as PostgreSQL's `infinity`.
    """
    if pa.types.is_date32(values.type):
        days = values.cast(pa.int32())
        unfit = pc.or_(pc.less(days, _DAYS[0]), pc.greater_equal(days, _DAYS[1]))
    else:
        escaped = pc.replace_substring_regex(values, f"[{_ESCAPED}]", "%00")
        unfit = pc.or_(pc.greater(pc.binary_length(escaped), _LONGEST_VALUE), pc.equal(values, NULL))
    return pc.fill_null(unfit, fill_value=False).to_numpy(zero_copy_only=False)


def split(rows: pa.Table, values: Sequence[pa.ChunkedArray]) -> Iterator[tuple[tuple[Any, ...], pa.Table]]:
    """Yields the rows of each partition with its values; `rows` are sorted by `values`, those of all fields."""
    if not rows.num_rows:
        return
    codes = [value.combine_chunks().dictionary_encode(null_encoding="encode").indices.to_numpy() for value in values]
    starts = [0, *(np.flatnonzero(np.any([np.diff(each) != 0 for each in codes], axis=0)) + 1).tolist(), rows.num_rows]
    check_count(starts[:-1])
    for start, end in pairwise(starts):
        yield tuple(value[start].as_py() for value in values), rows.slice(start, end - start)


def check_count(places: Collection[object]) -> None:
    """Raises SnapshotError if there are more partitions than a snapshot may have."""
    if len(places) > MOST_PARTITIONS:
        raise SnapshotError(
            f"No typed snapshot can be taken: {_SETTING} would make more than {MOST_PARTITIONS} partitions.",
            "Name a column with fewer values, or month(…) in place of day(…).",
        )


def _has(kind: pa.DataType, transform: str) -> bool:
    if transform == IDENTITY:
        is_whole = pa.types.is_integer(kind) or pa.types.is_boolean(kind)
        return is_whole or pa.types.is_string(kind) or pa.types.is_date(kind) or pa.types.is_null(kind)
    return pa.types.is_timestamp(kind) or (pa.types.is_date(kind) and transform != "hour")
