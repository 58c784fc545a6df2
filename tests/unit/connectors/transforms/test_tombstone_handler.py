"""TombstoneHandler, of which there is no class to compare with, does what its setting says."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from connectors.data.record import ConnectRecord
from connectors.errors import DataError
from connectors.options import read
from connectors.transforms.tombstone_handler import TombstoneHandler

RECORD = ConnectRecord("t", 2, 7, 0, None, "k", None, {"a": 1})
TOMBSTONE = ConnectRecord("t", 2, 8, 0, None, "k", None, None)


def handler(**texts: str) -> TombstoneHandler:
    """Returns one with these settings."""
    return TombstoneHandler(read(TombstoneHandler.OPTIONS, texts))


@pytest.mark.parametrize(("behavior", "lines"), [("drop_silent", 0), ("DROP_WARN", 1)])
def test_a_tombstone_is_dropped_with_a_line_or_without(behavior: str, lines: int) -> None:
    """The line says which record it was; others pass."""
    made = handler(behavior=behavior)
    with capture_logs() as logged:
        assert made.apply(TOMBSTONE) is None
        assert made.apply(RECORD) is RECORD
    assert len(logged) == lines
    assert all((one["topic"], one["partition"], one["offset"]) == ("t", 2, 8) for one in logged)


def test_a_tombstone_is_refused() -> None:
    """As an error of that record."""
    with pytest.raises(DataError, match="behavior=fail"):
        handler(behavior="fail").apply(TOMBSTONE)


def test_by_default_there_is_a_line() -> None:
    """A tombstone that is dropped deletes nothing, which is seldom what is wanted."""
    with capture_logs() as logged:
        handler().apply(TOMBSTONE)
    assert len(logged) == 1
