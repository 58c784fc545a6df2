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


def read(headers: list[Any], kind: int, timestamp: int, *, context_headers: bool = True) -> Letter:
    """Returns the letter of a message with these headers."""
    given = {"partition": 0, "offset": 5, "key": b"k", "value": None, "timestamp": (kind, timestamp), "error": None}
    message = SimpleNamespace(**{name: (lambda found=found: found) for name, found in given.items()})
    message.headers = lambda: headers
    reader = SimpleNamespace(read=lambda _start, _end: [message])
    letters = read_letters(
        {}, "dead", 0, 5, 6, lambda *_, **_more: cast("Any", reader), context_headers=context_headers
    )
    return next(letters)


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


FORGED = [("keyfold.source.timestamp", b"3"), *UPSTREAM, ("__connect.errors.connector.name", b"c")]


def test_no_header_is_believed_if_the_connector_writes_none() -> None:
    """Who produces to the source can write the same ones: they are the record's, and say nothing of the letter."""
    letter = read(FORGED, TIMESTAMP_LOG_APPEND_TIME, 9, context_headers=False)
    assert (letter.context, letter.headers, letter.dated) == ({}, tuple(FORGED), False)
    zero = read([*FORGED, ZERO], TIMESTAMP_LOG_APPEND_TIME, 9, context_headers=False)
    assert (zero.context, zero.headers, zero.record_ms) == ({}, tuple(FORGED), 0)


@pytest.mark.parametrize("time", [b"9" * 5_000, b"9" * 30, b"\xb2", b"-1"])
def test_a_header_that_says_no_time_is_the_records_own(time: bytes) -> None:
    """A number that Python would not read ends no command; the letter's time is then all that is known."""
    letter = read([(TIMESTAMP, time), *CONTEXT], TIMESTAMP_LOG_APPEND_TIME, 9)
    assert (letter.headers, letter.context, letter.record_ms) == (((TIMESTAMP, time),), SAID, None)


@pytest.mark.parametrize("count", [b"9" * 5_000, b"\xb2", b"-1"])
def test_a_count_of_redrives_that_is_no_number_is_none(count: bytes) -> None:
    """It is counted anew."""
    letter = read([("keyfold.redrives", count)], TIMESTAMP_CREATE_TIME, 9)
    assert letter.redrives == 0
    assert letter.source_row()[3] == [("keyfold.redrives", b"1")]
