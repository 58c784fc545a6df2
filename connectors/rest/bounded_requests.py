"""Reads requests over HTTP/1.1, and refuses those that take long to read for the few bytes that they are.

A line of a head, a chunk of a body and a parameter of a query each take some microseconds of the event loop. A few
hundred requests with thousands of them had `/health` answered after a minute, and anyone who can connect could send
them.
"""

from __future__ import annotations

import re
from typing import Any, Final

import h11
from h11._receivebuffer import ReceiveBuffer  # nothing public has the lines of a head or a trailer before they are read

HEAD_MAX: Final = 64 << 10
"""Bytes of the line of a request, and of a head that comes in parts; longer ones are answered by 400."""
MOST_HEADERS: Final = 100
"""Headers of a request, and of its trailer: browsers send 20, and proxies add some. Other servers take as many."""
HEADERS_MAX: Final = 16 << 10
"""Bytes of all headers. A list in one of them (`Accept`) may have a value for every second byte: 8,000 take 4 ms."""
FREE_CHUNKS: Final = 256
"""Chunks of a body whatever their size, which take 4 ms."""
CHUNK_BYTES: Final = 1 << 10
"""Bytes for which a body may have one chunk more: what takes longer to read takes longer to send."""
MOST_PARAMETERS: Final = 1_000
"""Parameters of a query, ten for each key of the largest look-up. So many take 2 ms."""
_END: Final = re.compile(rb"\n\r?\n")
"""The end of a head or a trailer with lines, as h11 takes it."""
_NO_VALUE: Final = re.compile(rb"[\0\v\f\r]")
"""What no header's value has. h11 would find it by a pattern that tries each blank before it with each one after: one
header of 60,000 blanks and a NUL kept all threads of the worker waiting for 7 s."""


class BoundedRequests(h11.Connection):
    """A connection of which each request is bounded as above; what is more is a RemoteProtocolError."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._receive_buffer = _BoundedLines()
        # Chunks and bytes of the body that is being read.
        self._chunks = 0
        self._bytes = 0

    def next_event(self) -> Any:
        """Returns what comes next of what was received. Raises h11.RemoteProtocolError."""
        event = super().next_event()
        if isinstance(event, h11.Data):
            self._chunks += event.chunk_start
            self._bytes += len(event.data)
            if self._chunks > FREE_CHUNKS + self._bytes // CHUNK_BYTES:
                raise h11.RemoteProtocolError(f"{self._chunks} chunks of {self._bytes} bytes")
        elif isinstance(event, h11.Request):
            self._chunks = self._bytes = 0
            if event.target.count(b"&") >= MOST_PARAMETERS:
                raise h11.RemoteProtocolError(f"more than {MOST_PARAMETERS} parameters")
        return event


class _BoundedLines(ReceiveBuffer):
    """What was received, of which a head or a trailer is refused before its lines are read, or even split."""

    def maybe_extract_lines(self) -> list[bytearray] | None:
        """Returns the lines of a head or a trailer; None if it is not complete. Raises h11.LocalProtocolError."""
        received = self._data
        if received.startswith((b"\n", b"\r\n")):  # a trailer without lines: what follows is the next request's
            return super().maybe_extract_lines()
        end = _END.search(received)
        size = end.start() + 1 if end else len(received)
        first = received.find(b"\n", 0, size) + 1 or size
        if received.count(b"\n", first, size) > MOST_HEADERS or size - first > HEADERS_MAX or first > HEAD_MAX:
            raise h11.LocalProtocolError(f"a head beyond {MOST_HEADERS} headers or {HEADERS_MAX} bytes of them")
        lines = super().maybe_extract_lines()
        if lines and any(map(_NO_VALUE.search, lines)):
            raise h11.LocalProtocolError("a header with a character that no value has")
        return lines
