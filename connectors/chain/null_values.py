"""Makes a tombstone of each record with a value that the converter reads as null, as Kafka Connect's sinks do.

Debezium's `ExtractNewRecordState` leaves a delete as null with a schema, which JsonConverter writes as the bytes
`null`, or as an envelope of which the payload is null. Kept as bytes, such a record would be a live row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from compactor.model.record import SOURCE
from connectors.chain.rows import headers_at, located
from connectors.converters.converter import Converter
from connectors.data.record import Header
from connectors.errors import DataError, RegistryError

IsNull = Callable[[Sequence[Header], bytes], bool]
"""Returns whether a converter reads a value with these headers as null. Raises RegistryError."""
_VALUE = SOURCE.get_field_index("value")


def with_tombstones(batch: pa.RecordBatch, converter: Converter, is_null: IsNull) -> pa.RecordBatch:
    """Returns `batch` with null in place of each value that `converter` reads as null.

    Arrow finds the few values that may be, and only these are read. Rejected records stay as they are: a dead letter
    has the bytes of its record. Raises RegistryError, with the place of the record.
    """
    maybe = converter.maybe_null(batch.column(_VALUE))
    if maybe is None:
        return batch
    rows = pc.indices_nonzero(pc.and_(pc.is_null(batch["rejected"]), maybe))
    nulls = _nulls(batch, rows, converter, is_null) if len(rows) else rows
    if not len(nulls):
        return batch
    is_read_as_null = np.zeros(batch.num_rows, np.bool_)
    is_read_as_null[nulls.to_numpy()] = True
    values = pc.if_else(pa.array(is_read_as_null), pa.scalar(None, pa.binary()), batch.column(_VALUE))
    return batch.set_column(_VALUE, batch.schema.field(_VALUE), values)


def _nulls(batch: pa.RecordBatch, rows: pa.Array, converter: Converter, is_null: IsNull) -> pa.Array:
    """Returns those of `rows` with values that are null. What is read without headers is read once for equal values."""
    values = batch.column(_VALUE).take(rows)
    if converter.READS_HEADERS:
        return rows.filter(pa.array([_is_null_at(batch, row, is_null) for row in rows.to_pylist()], pa.bool_()))
    nulls = [value for value in values.unique().to_pylist() if is_null((), value)]
    return rows.filter(pc.is_in(values, pa.array(nulls, pa.binary())))


def _is_null_at(batch: pa.RecordBatch, row: int, is_null: IsNull) -> bool:
    try:
        return is_null(headers_at(batch, row), batch.column(_VALUE)[row].as_py())
    except DataError:  # of too many headers: nothing else looks at them
        return False
    except RegistryError as error:
        place = (batch[name][row].as_py() for name in ("topic", "partition", "offset"))
        raise located(error, *place) from error
