"""What reads many values of one schema at once, as far as columns of them can be read."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from connectors.data.schema import Schema


class ReadColumns(NamedTuple):
    """The values at `rows`, as structs of their fields in the encoded form that they have with a schema."""

    rows: NDArray[np.intp]
    columns: pa.StructArray


class ColumnReader(Protocol):
    """Reads values of one schema; used by one thread."""

    @property
    def schema(self) -> Schema:
        """The schema, which is a STRUCT's."""

    def read(self, values: pa.Array, rows: NDArray[np.intp]) -> ReadColumns:
        """Reads those of `values` (binary) that are at `rows`, which rise; a value in any way unusual is left out."""
