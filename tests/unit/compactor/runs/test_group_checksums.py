"""Checksums of row groups are written and read as docs/formats.md says."""

from __future__ import annotations

import zlib
from unittest.mock import Mock

from compactor.runs.group_checksums import KEY, GroupChecksum, GroupSums, of_footer

WRITTEN = {KEY: b"CAAAAAAAAAARzYLtDQAAAAAAAAAJQm9d"}
"""As a footer has had it since 2026-11-27: files with it are read for good."""


def test_a_footer_has_the_end_and_the_checksum_of_each_row_group() -> None:
    """Its bytes are what was written since the row group before, the first one's since the magic of the file."""
    sums, at = GroupSums(), 0
    for pieces in ([b"PAR1"], [b"ab", b"cd"], [b"efghi"]):
        for piece in pieces:
            sums.add(piece)
            at += len(piece)
        sums.end(at)
    assert sums.metadata() == WRITTEN
    groups = of_footer(Mock(metadata=WRITTEN)) or ()
    assert groups == [GroupChecksum(4, 8, zlib.crc32(b"abcd")), GroupChecksum(8, 13, zlib.crc32(b"efghi"))]
    assert (groups[0].fits(b"abcd"), groups[0].fits(b"abce")) == (True, False)


def test_a_file_of_before_has_none() -> None:
    """Nor has one without an index of its keys."""
    assert of_footer(Mock(metadata=None)) is None
    assert of_footer(Mock(metadata={b"ARROW:schema": b""})) is None
