"""The footer's notes of row groups are written and read as docs/formats.md says."""

from __future__ import annotations

import zlib

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from compactor.model.record import HEADERS
from compactor.runs.group_notes import KEY, GroupNote, GroupNotes, blank, of_footer

WRITTEN = b"CAAAAAAAAAARzYLtBgAAAA0AAAAAAAAACUJvXQAAAAAOAAAAAAAAAMtnZX8BAAAA"
"""As a footer has had it since 2026-11-27: files with it are read for good."""

SCHEMA = pa.schema([("a", pa.int64()), ("b", pa.string()), ("headers", HEADERS)])
ROWS = [
    pa.table({"a": [1, 2], "b": [None, None], "headers": [[], []]}, SCHEMA),
    pa.table({"a": [1, None], "b": [None, ""], "headers": [[], None]}, SCHEMA),
    pa.table({"a": [None], "b": ["x"], "headers": [[("k", b"v")]]}, SCHEMA),
]
BLANKS = [{"b", "headers"}, set[str](), {"a"}]


def footer(metadata: dict[bytes, bytes]) -> pq.FileMetaData:
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, SCHEMA) as writer:
        writer.add_key_value_metadata(metadata)
    return pq.read_metadata(pa.BufferReader(sink.getvalue()))


def test_a_footer_has_the_end_the_checksum_and_the_blank_columns_of_each_row_group() -> None:
    """What comes before a row group, as the magic of the file, is not in its checksum."""
    notes, at = GroupNotes(), 4
    notes.add(b"PAR1")
    for rows, pieces in zip(ROWS, ([b"ab", b"cd"], [b"efghi"], [b"j"]), strict=True):
        notes.begin()
        for piece in pieces:
            notes.add(piece)
            at += len(piece)
        notes.end(at, rows)
    assert notes.metadata() == {KEY: WRITTEN}
    expected = zip(((4, 8), (8, 13), (13, 14)), (b"abcd", b"efghi", b"j"), BLANKS, strict=True)
    read = of_footer(footer({KEY: WRITTEN})) or ()
    assert read == [GroupNote(*bounds, zlib.crc32(data), frozenset(blanks)) for bounds, data, blanks in expected]
    assert (read[0].fits(b"abcd"), read[0].fits(b"abce")) == (True, False)


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_column_is_blank_if_reading_it_tells_nothing(number: int) -> None:
    """It is null, or a list of nothing in each row: `blank` gives what was there."""
    for name in BLANKS[number]:
        assert blank(SCHEMA.field(name), 2 - number // 2).equals(ROWS[number][name].combine_chunks())


def test_a_file_of_before_has_no_notes() -> None:
    """Nor has one without an index of its keys."""
    assert of_footer(footer({})) is None
