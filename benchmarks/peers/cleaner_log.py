"""What Kafka's log cleaner says of each pass in the broker's log (`LogCleaner.CleanerThread.recordStats`)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from msgspec import Struct

_PASS: Final = re.compile(
    r"Log cleaner thread \d+ cleaned log (?P<log>\S+) \(dirty section = \[(?P<start>\d+), (?P<end>\d+)\]\)\s+"
    r"(?P<mb>[\d,.]+) MB of log processed in (?P<seconds>[\d,.]+) seconds"
    r"(?:(?!Log cleaner thread).)*?Start size: [\d,.]+ MB \((?P<read>[\d,]+) messages\)"
    r"\s+End size: [\d,.]+ MB \((?P<kept>[\d,]+) messages\)",
    re.DOTALL,
)


class Pass(Struct, frozen=True, kw_only=True):
    """One pass over one partition, `log` being topic-partition: its dirty section [start, end), what it read and kept.

    `mb` is what it read in MB, the dirty section twice; `seconds` it tells to a tenth.
    """

    log: str
    start: int
    end: int
    mb: float
    seconds: float
    read: int
    kept: int


def passes(text: str) -> Iterator[Pass]:
    """All that are told of in `text`, the log of a broker whose language is English, in their order."""
    for found in _PASS.finditer(text):
        plain = {name: said.replace(",", "") for name, said in found.groupdict().items()}
        yield Pass(
            log=plain["log"],
            start=int(plain["start"]),
            end=int(plain["end"]),
            mb=float(plain["mb"]),
            seconds=float(plain["seconds"]),
            read=int(plain["read"]),
            kept=int(plain["kept"]),
        )


def over(found: Iterable[Pass], ends: Mapping[str, int]) -> list[Pass] | None:
    """Those passes that went over `ends`, the end of each log; None while one has not been reached."""
    mine = [one for one in found if one.log in ends]
    reached = {one.log: one.end for one in mine}
    return mine if all(reached.get(log, 0) >= end for log, end in ends.items()) else None
