"""As much of a DataFrame as ingest asks for, without Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from compactor.record import SOURCE


class LocalFrame:
    """What each of `tasks` reading tasks yields, worked off in this process: Spark takes 50 times as long."""

    def __init__(self, tasks: Sequence[Sequence[dict[str, Any]]]) -> None:
        self._batches = [pa.RecordBatch.from_pylist([*rows], schema=SOURCE) for rows in tasks]

    def mapInArrow(  # noqa: N802 - Spark's name
        self, function: Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]], _schema: str
    ) -> _Mapped:
        return _Mapped([one for batch in self._batches for one in function([batch])])


class _Mapped:
    def __init__(self, batches: Sequence[pa.RecordBatch]) -> None:
        self._batches = batches

    def collect(self) -> list[_Row]:
        return [_Row(one) for batch in self._batches for one in batch.to_pylist()]


class _Row:
    def __init__(self, fields: dict[str, Any]) -> None:
        self._fields = fields

    def asDict(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        return self._fields
