"""From where `keyfold resync --since` reads."""

from __future__ import annotations

import pytest

from connectors.cli.commands.resync import since_of
from connectors.errors import UsageError
from connectors.operations.offsets import FROM_START, Since

NOW_MS = 1_800_000_000_000


@pytest.mark.parametrize(
    ("text", "partition", "since"),
    [
        (None, None, FROM_START),
        (None, 3, FROM_START),
        ("0", 0, Since(offset=0)),
        ("987654321098765432", 0, Since(offset=987654321098765432)),
        ("2026-11-26T10:00:00Z", None, Since(time_ms=1_795_687_200_000)),
        ("2026-11-26T10:00:00.250Z", 1, Since(time_ms=1_795_687_200_250)),
        ("2026-11-26T12:00:00+02:00", None, Since(time_ms=1_795_687_200_000)),
        ("1950-01-01T00:00:00Z", None, Since(time_ms=0)),
    ],
)
def test_a_time_or_an_offset(text: str | None, partition: int | None, since: Since) -> None:
    """A time holds for all partitions, an offset for one that is named."""
    assert since_of(text, partition, NOW_MS) == since


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("7", "is an offset, and each partition has its own"),
        ("2026-11-26T10:00:00", "has no time zone"),
        ("2026-11-26", "has no time zone"),
        ("yesterday", "is neither a time nor an offset"),
        ("-5", "is neither a time nor an offset"),
        ("٣", "is neither a time nor an offset"),
        ("1" * 19, "is neither a time nor an offset"),
        ("2027-11-26T10:00:00Z", "has not come yet"),
        ("9999-12-31T23:59:59-14:00", "has not come yet"),
    ],
)
def test_what_cannot_be_meant_is_refused(text: str, why: str) -> None:
    """All keys would go if a time is too late by hours."""
    with pytest.raises(UsageError, match=why):
        since_of(text, None, NOW_MS)
