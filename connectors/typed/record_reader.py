"""Reads the keys or values of records with their schemas, for typed snapshots."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from compactor.errors import SnapshotError
from connectors.chain.conversion import RejectedError
from connectors.chain.quoted_settings import Names
from connectors.chain.rows import headers_at
from connectors.converters.converter import Converter
from connectors.converters.wire_format import NAMING_HEADERS
from connectors.data.bounds import check_size
from connectors.data.record import Header
from connectors.data.schema import Schema
from connectors.errors import PortionLateError, RegistryError
from connectors.machine_errors import refuse_machine
from connectors.rejection import Stage

CHUNK_BYTES: Final = 256 << 10
"""Bytes of keys or values that are objects of Python at once: they take some 50 times as much, and the columns of
records that are all symbols of enums (`arrow_types.LONGEST_TEXT`) 1,000 times."""
CHUNK_ROWS: Final = 8_192
LONGEST_REASON: Final = 300
"""Characters of the reason why a record fits no column."""
WAIT_S: Final = 20.0
"""How long (s) a Spark task of a snapshot waits for registries in all: a backlog of another connector may wait for that
task to end. A registry that is well answers a thousand questions by then."""
_SLOW: Final = (
    "It is tried again, later each time. See how fast the registry answers, or set snapshot.value.format=bytes."
)
_NAMING: Final = {side: pa.array(sorted(names), pa.string()) for side, names in NAMING_HEADERS.items()}
"""By side the headers that say with which schema it is written."""
HeadersOf = Callable[[int], Sequence[Header]]
"""Gives the headers of a row of a batch. Raises DataError for too many of them."""


class RecordReader(Struct):
    """Reads keys or values with their schemas; used by one thread. `unseen`: settings that no error may quote."""

    side: str
    name: str
    converter: Converter
    most: int
    unseen: Names

    def read(self, headers: Sequence[Header], data: bytes) -> tuple[Schema | None, Any]:
        """Returns schema and value. Raises RegistryError, and DataError or another error for what cannot be read."""
        check_size(len(data), self.most)
        return self.converter.to_connect_data("", list(headers), data)

    def headers_of(self, batch: pa.RecordBatch) -> HeadersOf:
        """Returns what gives the headers of a row; none of any if the converter does not look at them."""
        if not self.converter.READS_HEADERS or not len(pc.list_flatten(batch["headers"])):
            return lambda _: ()
        return partial(headers_at, batch)

    def names_schemas(self, batch: pa.RecordBatch) -> bool:
        """Returns whether headers say the schema of some record."""
        names = pc.struct_field(pc.list_flatten(batch["headers"]), "key")
        return bool(pc.any(pc.is_in(names, _NAMING[self.side])).as_py())

    def reason(self, error: Exception) -> str:
        """Returns why a record cannot be read, without what may not be shown. Raises MachineError."""
        refuse_machine(error)
        stage = Stage.KEY_CONVERTER if self.side == "key" else Stage.VALUE_CONVERTER
        why = RejectedError(stage, self.name, error, self.unseen).rejection.message
        return f"{self.name} cannot read the {self.side}: {why}"[:LONGEST_REASON]


def waiting(error: RegistryError) -> SnapshotError:
    """Returns the error of a snapshot that cannot be taken while a registry does not answer."""
    action = _SLOW if isinstance(error, PortionLateError) else error.action
    return SnapshotError(f"A typed snapshot cannot be taken for now: {error.message}", action)


def chunks(data: pa.Array, most_rows: int) -> Iterator[slice]:
    """Yields slices of at most `most_rows`, and of CHUNK_BYTES unless one row alone has more."""
    sizes = pc.fill_null(pc.binary_length(data), 0).to_numpy(zero_copy_only=False)
    ends, start = np.cumsum(sizes, dtype=np.int64), 0
    while start < len(data):
        before = int(ends[start - 1]) if start else 0
        end = int(np.searchsorted(ends, before + CHUNK_BYTES, side="right"))
        end = min(max(start + 1, end), start + most_rows, len(data))
        yield slice(start, end)
        start = end
