"""Adds headers to many records at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from compactor.model.record import HEADERS
from connectors.data.schema import Schema
from connectors.data.unwrapping import NewHeader, Rows
from connectors.machine_errors import refuse_machine

_LONGEST: Final = 256 << 10
"""Bytes of a header up to which it is added here: a few of these are far from what a record may become."""

Write = Callable[[str, str, Schema | None, Any], bytes | None]
"""Returns the bytes of a header of a topic and a name (`HeaderConverter.from_connect_header`)."""


class AddedHeaders:
    """Adds headers, of which `write` writes the values; what they are does not depend on the topic."""

    def __init__(self, write: Write) -> None:
        self._write = write

    def to(self, headers: pa.Array, added: Sequence[NewHeader]) -> tuple[pa.Array, Rows]:
        """Returns the headers of a batch with those `added`, and which records have one that cannot be written."""
        is_bad = np.zeros(len(headers), np.bool_)
        written: list[bytes | None] = []
        for header in added:
            for row, value in zip(header.rows.tolist(), header.values, strict=True):
                data = self._written(header, value)
                is_bad[row] |= data is False
                written.append(None if isinstance(data, bool) else data)
        names = [pa.repeat(pa.scalar(header.name, pa.string()), len(header.rows)) for header in added]
        keys = pa.concat_arrays(names)
        new = pa.StructArray.from_arrays([keys, pa.array(written, pa.binary())], fields=list(HEADERS.value_type))
        return _joined(headers, new, np.concatenate([header.rows for header in added])), is_bad

    def _written(self, header: NewHeader, value: Any) -> bytes | bool | None:
        """Returns the bytes of a header; False if the record has to be looked at by itself."""
        try:
            data = self._write("", header.name, header.schema, value)
        except Exception as error:  # noqa: BLE001  # the chain says what is wrong with the record
            refuse_machine(error)
            return False
        return data if len(data or b"") <= _LONGEST else False


def _joined(headers: pa.Array, new: pa.Array, rows: NDArray[np.intp]) -> pa.Array:
    """Returns lists of headers with those that are `new` for some rows, in their order, after the others."""
    count = len(headers)
    old = pc.fill_null(pc.list_value_length(headers), 0).to_numpy().astype(np.int64)
    owners = np.concatenate([np.repeat(np.arange(count), old), rows])
    order = pa.array(np.argsort(owners, kind="stable"))
    offsets = np.zeros(count + 1, np.int32)
    np.cumsum(np.bincount(owners, minlength=count), out=offsets[1:])
    is_null = headers.is_null().to_numpy(zero_copy_only=False) & (np.bincount(rows, minlength=count) == 0)
    flat = pa.concat_arrays([pc.list_flatten(headers), new]).take(order)
    return pa.ListArray.from_arrays(pa.array(offsets), flat, type=HEADERS, mask=pa.array(is_null))
