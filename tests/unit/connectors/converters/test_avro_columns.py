"""What is passed over by columns ends where fastavro ends that reads it, or is lost."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import fastavro
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from connectors.converters.avro.columns import AvroBytes, columns_of
from tests.unit.connectors.converters.test_avro_skips import KINDS, _encoded

LOST = -1
ENUM = {"type": "enum", "name": "E", "symbols": ["A", "B"]}
FIXED = {"type": "fixed", "name": "F", "size": 2}
TYPES: list[Any] = [
    "boolean", "int", "long", "float", "double", "bytes", "string", ENUM, FIXED, ["null", "string"], ["string", "null"],
    {"type": "record", "name": "R", "fields": [{"name": "a", "type": FIXED}, {"name": "b", "type": ["null", "F"]}]},
    {"type": "array", "items": "string"}, {"type": "map", "values": "long"},
]  # fmt: skip


def ends(avro: Any, records: Sequence[bytes], *, is_read: bool = True) -> list[int]:
    """Returns where the value at the begin of each record ends, LOST for those that are lost."""
    at = np.cumsum([0, *map(len, records)])
    begin, lost = at[:-1], at[1:] + 1
    data = np.frombuffer(b"".join(records) or b"\0", np.uint8)
    end = columns_of(avro, is_read=is_read)(AvroBytes(data), begin, lost)
    return np.where(end < lost, end - begin, LOST).tolist()


def read(avro: Any, record: bytes) -> int:
    """Returns where fastavro ends that reads a value, LOST if it refuses it."""
    stream = io.BytesIO(record)
    try:
        fastavro.schemaless_reader(stream, fastavro.parse_schema(avro), None)
    except Exception:  # noqa: BLE001  # fastavro raises what it stumbles over
        return LOST
    return stream.tell()


@pytest.mark.parametrize(("avro", "value"), KINDS)
def test_each_type_ends_where_it_ends_and_not_before(avro: Any, value: Any) -> None:
    """Data that is cut off anywhere is lost, whatever follows it; so is a list that is not empty."""
    raw = _encoded(avro, value)
    is_list = isinstance(avro, dict) and avro["type"] in {"array", "map"}
    cut = [raw[:end] for end in range(len(raw))]
    for is_read in (True, False):
        assert ends(avro, [raw, *cut, raw], is_read=is_read) == [
            LOST if is_list else len(raw), *[LOST] * len(raw), LOST if is_list else len(raw)
        ]  # fmt: skip


@pytest.mark.parametrize("avro", TYPES)
@settings(max_examples=300, deadline=None)
@given(records=st.lists(st.binary(max_size=14), min_size=1, max_size=8))
@example(records=[b"\x04", b"\x02", b"\x01", b"\x80\x00"])
@example(records=[b"\x08\xc3\xa4ab", b"\x04\xc3\x28", b"\x04\xc3", b"\xf0" * 12])
def test_what_is_not_lost_ends_where_fastavro_ends(avro: Any, records: list[bytes]) -> None:
    """Any bytes, any type: text that is no UTF-8, symbols and branches that there are not, lengths below 0."""
    made = ends(avro, records)
    assert [end for end in made if end != LOST] == [
        read(avro, record) for record, end in zip(records, made, strict=True) if end != LOST
    ]


def test_an_empty_list_has_one_byte() -> None:
    """As most lists of a source's fields are."""
    assert ends({"type": "array", "items": ENUM}, [b"\0", b"\0a", b"", b"\2\0\0"]) == [1, 1, LOST, LOST]
