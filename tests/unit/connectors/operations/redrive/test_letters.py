"""What of a dead letter is the record's own, and what says why it was let go."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME

from connectors.operations.redrive.letters import Letter, read_letters
from connectors.sinks.encode import TIMESTAMP

TIME = (TIMESTAMP, b"7")
ZERO = (TIMESTAMP, b"0")
OWN_TIME = (TIMESTAMP, b"3")
CONTEXT = [("__connect.errors.topic", b"t"), ("__connect.errors.stage", b"TASK_PUT")]
SAID = {"topic": "t", "stage": "TASK_PUT"}
UPSTREAM = [("__connect.errors.topic", b"up"), ("__connect.errors.offset", b"1")]


def read(headers: list[Any], kind: int, timestamp: int) -> Letter:
    """Returns the letter of a message with these headers."""
    given = {"partition": 0, "offset": 5, "key": b"k", "value": None, "timestamp": (kind, timestamp), "error": None}
    message = SimpleNamespace(**{name: (lambda found=found: found) for name, found in given.items()})
    message.headers = lambda: headers
    reader = SimpleNamespace(read=lambda _start, _end: [message])
    return next(read_letters({}, "dead", 0, 5, 6, lambda *_: cast("Any", reader)))


@pytest.mark.parametrize(
    ("headers", "kind", "timestamp", "own", "said", "time"),
    [
        ([], TIMESTAMP_CREATE_TIME, 9, [], {}, 9),
        ([("h", b"1"), TIME, *CONTEXT], TIMESTAMP_LOG_APPEND_TIME, 9, [("h", b"1")], SAID, 7),
        ([OWN_TIME, TIME, *CONTEXT], TIMESTAMP_LOG_APPEND_TIME, 9, [OWN_TIME], SAID, 7),
        ([OWN_TIME, ("h", b"1")], TIMESTAMP_CREATE_TIME, 9, [OWN_TIME, ("h", b"1")], {}, 9),
        ([OWN_TIME], TIMESTAMP_CREATE_TIME, 9, [OWN_TIME], {}, 9),
        ([("h", b"1")], TIMESTAMP_LOG_APPEND_TIME, 9, [("h", b"1")], {}, 9),
        ([OWN_TIME, *CONTEXT, ZERO], TIMESTAMP_LOG_APPEND_TIME, 9, [OWN_TIME], SAID, 0),
        ([OWN_TIME, ZERO], TIMESTAMP_CREATE_TIME, 1, [OWN_TIME], {}, 0),
        ([ZERO], TIMESTAMP_CREATE_TIME, 9, [ZERO], {}, 9),
        ([*UPSTREAM, TIME, *CONTEXT], TIMESTAMP_CREATE_TIME, 9, UPSTREAM, SAID, 7),
    ],
)
def test_headers_of_the_record_stay_apart_from_ours(
    headers: list[Any],
    kind: int,
    timestamp: int,
    own: list[Any],
    said: dict[str, str],
    time: int,
) -> None:
    """Also where the record has some of the same names: of another keyfold, or of a dead letter topic as its source."""
    found = read(headers, kind, timestamp)
    assert (found.headers, found.context, found.timestamp) == (tuple(own), said, time)
    said_time = kind == TIMESTAMP_CREATE_TIME or time != timestamp
    assert found.record_ms == (time if said_time else None)
    assert found.appended == (timestamp if kind == TIMESTAMP_LOG_APPEND_TIME else None)
