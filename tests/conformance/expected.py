"""The expected result: the last committed record of every key. It shows which side is wrong if they differ."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tests.conformance.compare import Record
from tests.conformance.workload import TRANSACTIONAL, Operation, Send


def survivors(operations: Iterable[Operation], *, tombstones: bool) -> list[Record]:
    """Returns what compaction leaves of a workload, by offset, with or without tombstones."""
    last = {one.key: one for one in sorted(_committed(operations))}
    return sorted(one for one in last.values() if tombstones or one.value is not None)


def _committed(operations: Iterable[Operation]) -> Iterator[Record]:
    """The records of no transaction, and those of transactions that were committed."""
    open_: dict[str, list[Record]] = {}
    offset = 0
    for one in operations:
        if isinstance(one, Send):
            sent = [
                Record(at, e.key, e.value, (*e.headers,), e.timestamp_ms) for at, e in enumerate(one.entries, offset)
            ]
            offset += len(sent)
            if one.producer in TRANSACTIONAL:
                open_.setdefault(one.producer, []).extend(sent)
            else:
                yield from sent
        else:
            offset += 1
            ended = open_.pop(one.producer)
            yield from ended if one.commit else ()
