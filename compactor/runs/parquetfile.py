"""One Parquet file on its way into the store: its size and checksum are known without reading it again."""

from __future__ import annotations

import hashlib
from types import TracebackType
from typing import Any, Final, Self

import pyarrow as pa
import pyarrow.parquet as pq

from compactor.runs import checksums as footers
from compactor.storage.base import Storage

_OPTIONS: Final = {"version": "2.6", "compression": "zstd", "compression_level": 1}
_REPEATED: Final = ["topic", "partition", "timestamp_type", "key", "headers.list.element.key", "rejected"]
_PRUNED_BY: Final = ["topic", "partition", "offset", "timestamp", "delete_horizon"]


class ParquetFile:
    """Writes tables, each as one row group; nobody sees the file before it is closed without an error.

    Statistics are kept where readers prune by them: those of keys and values would only cost.
    """

    def __init__(self, storage: Storage, path: str, schema: pa.Schema) -> None:
        self.path = path
        self._context = storage.open_output(path)
        self._tee = _Tee(self._context.__enter__())
        names = set(schema.names)
        self._writer = pq.ParquetWriter(
            pa.PythonFile(self._tee, mode="w"),
            schema,
            use_dictionary=[name for name in _REPEATED if name.partition(".")[0] in names],
            write_page_checksum=True,  # so that a damaged page is known by itself, and the rest of the file stays good
            write_statistics=[name for name in _PRUNED_BY if name in names],
            **_OPTIONS,
        )

    @property
    def bytes(self) -> int:
        """Bytes written so far."""
        return self._tee.bytes

    @property
    def sha256(self) -> str:
        """The checksum, in hex, of what was written so far."""
        return self._tee.digest.hexdigest()

    @property
    def footer(self) -> str:
        """What `compactor.runs.checksums` keeps of the closed file."""
        return footers.told(self._tee.tail)

    def write(self, table: pa.Table) -> None:
        """Adds `table` as one row group."""
        self._writer.write_table(table, row_group_size=max(1, table.num_rows))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Completes the file, or removes it where there was an error."""
        self._tee.keep_tail()  # closing writes the footer, and nothing else
        try:
            self._writer.close()
        except Exception as closing:
            self._context.__exit__(type(closing), closing, closing.__traceback__)
            if error is None:
                raise
        else:
            self._context.__exit__(kind, error, trace)


class _Tee:
    """A stream for Arrow that counts and digests what passes to `stream`, and leaves closing it to its owner."""

    closed = False

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self.bytes = 0
        self.digest = hashlib.sha256()
        self.tail = b""
        self._keeps = False

    def keep_tail(self) -> None:
        self._keeps = True

    def write(self, data: Any) -> int:
        self.digest.update(data)
        self._stream.write(data)
        self.tail += bytes(data) if self._keeps else b""
        self.bytes += len(data)
        return len(data)

    def tell(self) -> int:
        return self.bytes

    def flush(self) -> None:
        """The owner of the stream makes it durable."""

    def close(self) -> None:
        self.closed = True
