"""Keys, headers and numbers of a few bytes each that stand for many are refused, or handed on in pieces."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pytest

from compactor.model.record import HEADERS, SOURCE
from connectors.chain.chain import Chain
from connectors.chain.key_identity import JsonKeyIdentity
from connectors.chain.rows import MOST_HEADERS
from connectors.chain.spec import ClassSpec, chain_faults, chain_spec, made_converter
from connectors.data.schema import DECIMAL
from connectors.errors import DataError
from connectors.kafka.consumers import headers_of_all
from connectors.source.arrow_records import bounded
from tests.unit.connectors.chain.test_chain import batch
from tests.unit.connectors.test_amplifying_records import INSERT, applied, little_room, refused

HUGE: Final = "1e399"
"""A number that its identity has 400 digits of."""
BY_VALUE: Final = {"compaction.key.identity": "json"}
NAMED: Final = {"transforms": "t", "transforms.t.type": "InsertHeader", "transforms.t.header": "x",
                "transforms.t.value.literal": "1"}  # fmt: skip


def through(settings: dict[str, str], *batches: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yields what a chain of `settings` makes of batches."""
    assert chain_faults(settings, str) == ()
    yield from Chain(chain_spec(settings), str).through(batches)


def with_headers(records: int, each: int) -> pa.RecordBatch:
    """Returns records with `each` headers of an empty name and no value."""
    count = records * each
    pairs = pa.StructArray.from_arrays(
        [pa.array([""]).take(pa.array(np.zeros(count, np.int64))), pa.nulls(count, pa.binary())],
        fields=list(HEADERS.value_type),
    )
    ends = pa.array(np.arange(records + 1, dtype=np.int32) * each)
    plain = batch(*([(b"k", b"{}")] * records))
    headers = pa.ListArray.from_arrays(ends, pairs, type=HEADERS)
    return plain.set_column(SOURCE.get_field_index("headers"), SOURCE.field("headers"), headers)


@pytest.mark.parametrize(
    ("form", "scale", "number"),
    [
        ("BASE64", "0", "1e999"),
        pytest.param("NUMERIC", "997", "1", marks=pytest.mark.long),
        pytest.param("BASE64", "997", "1", marks=pytest.mark.long),
        pytest.param("NUMERIC", "0", "1e999", marks=pytest.mark.long),
    ],
)
def test_decimals_are_counted_by_the_digits_that_an_exponent_or_scale_adds(form: str, scale: str, number: str) -> None:
    """Two characters of a list become 415 bytes, and a thousand digits once they are written."""
    items = {"type": "bytes", "name": DECIMAL, "version": 1, "parameters": {"scale": scale}}
    schema = {"type": "struct", "fields": [{"field": "d", "type": "array", "items": items}]}
    settings = {f"transforms.t.{name}": text for name, text in INSERT.items()}
    converter = {"value.converter": "keyfold.Json", "value.converter.decimal.format": form}
    data = b'{"schema":%s,"payload":{"d":[%s]}}' % (json.dumps(schema).encode(), ",".join([number] * 100_000).encode())
    with little_room():
        why = refused(through({**converter, "transforms": "t", **settings}, batch((b"k", data))))
    assert "The Decimals of the value" in why


def test_digits_of_decimals_are_counted_before_they_are_written() -> None:
    """A list of 300 kB becomes 25 MB of bytes, which is read, and 60 MB of digits, which is not written."""
    items = {"type": "bytes", "name": DECIMAL, "version": 1, "parameters": {"scale": "0"}}
    schema = {"type": "struct", "fields": [{"field": "d", "type": "array", "items": items}]}
    settings = {f"transforms.t.{name}": text for name, text in INSERT.items()}
    converter = {"value.converter": "keyfold.Json", "value.converter.decimal.format": "NUMERIC"}
    numbers = ",".join(["1e999"] * 60_000)
    data = b'{"schema":%s,"payload":{"d":[%s]}}' % (json.dumps(schema).encode(), numbers.encode())
    why = refused(through({**converter, "transforms": "t", **settings}, batch((b"k", data))))
    assert "would become one of more than" in why


def test_decimals_are_counted_for_each_record() -> None:
    """Three of 18 MB in one batch pass, and so does a small one after one that is refused."""
    items = {"type": "bytes", "name": DECIMAL, "version": 1, "parameters": {"scale": "0"}}
    schema = json.dumps({"type": "struct", "fields": [{"field": "d", "type": "array", "items": items}]}).encode()
    converter = made_converter(ClassSpec("keyfold.Json", {}), str, is_key=False)
    for count, passes in ((45_000, True), (45_000, True), (45_000, True), (100_000, False), (1, True)):
        data = b'{"schema":%s,"payload":{"d":[%s]}}' % (schema, ",".join(["1e999"] * count).encode())
        with nullcontext() if passes else pytest.raises(DataError, match="The Decimals of the value"):
            converter.to_connect_data("t", [], data)


def test_an_identity_is_bounded_by_its_key() -> None:
    """A key of 120 kB that would have one of 8 MB is a bad record, and a key of a few such numbers is none."""
    with little_room():
        why = refused(through(BY_VALUE, batch((f"[{','.join([HUGE] * 20_000)}]".encode(), b"v"))))
    assert "The key of 120001 bytes has an identity of more than" in why.replace(",", "")
    identity = JsonKeyIdentity().of((), f"[{','.join([HUGE] * 100)}]".encode()).identity
    assert identity is not None
    assert len(identity) == 101 + 100 * 400


def test_identities_are_remembered_by_their_bytes() -> None:
    """400 keys of 1 KiB have identities of 24 MB, of which none is kept."""
    identity = JsonKeyIdentity()
    numbers = ",".join([HUGE] * 150)
    with little_room(8 << 20):
        for number in range(400):
            identity.of((), f"[{numbers},{number}]".encode())


@pytest.mark.long  # test_identities_are_remembered_by_their_bytes has long ones
def test_short_identities_are_remembered_up_to_their_bytes() -> None:
    """42,000 keys of 900 bytes with identities as long would take 92 MB; some 64 MB of them are kept."""
    identity = JsonKeyIdentity()
    text = "x" * 880
    with little_room(80 << 20):
        for number in range(42_000):
            identity.of((), b'["%s", %d]' % (text.encode(), number))


def test_identities_are_handed_on_in_pieces() -> None:
    """600 records with identities of 60 kB are 36 MB; each piece has some 16."""
    numbers = ",".join([HUGE] * 150)
    records = batch(*((f"[{numbers},{number}]".encode(), b"v") for number in range(600)))
    rows = 0
    with little_room():
        for piece in through(BY_VALUE, records):
            rows += piece.num_rows
            assert piece["key_identity"].null_count == 0
            assert piece["key_identity"].nbytes < 20 << 20
    assert rows == 600


@pytest.mark.parametrize("settings", [NAMED, BY_VALUE], ids=["transforms", "identities"])
def test_a_record_of_more_headers_than_a_chain_takes_is_rejected(settings: dict[str, str]) -> None:
    """It keeps them; the records next to it pass, whose headers are made one record at a time."""
    few, many = with_headers(1, 2), with_headers(1, MOST_HEADERS + 1)
    key = SOURCE.get_field_index("key")
    few, many = (each.set_column(key, SOURCE.field("key"), pa.array([b"{}"])) for each in (few, many))
    mixed = pa.concat_batches([few, many, few])
    with little_room():
        (made,) = through(settings, mixed)
    (before, why, after), lengths = made["rejected"].to_pylist(), made["headers"].value_lengths().to_pylist()
    assert (before, after) == (None, None)
    assert f"The record has {MOST_HEADERS + 1} headers" in why
    more = 1 if settings is NAMED else 0
    assert lengths == [2 + more, MOST_HEADERS + 1, 2 + more]


def test_headers_without_bytes_count_in_a_batch() -> None:
    """Three records of 90,000 headers, of 9 bytes in all, go through one at a time."""
    with little_room():
        parts = list(bounded(with_headers(3, 90_000), 1 << 20))
        rows = [made.num_rows for part in parts for made in through(NAMED, part) if made.num_rows]
    assert rows == [1] * 3


def test_headers_that_are_set_count_in_a_piece() -> None:
    """50 records of 5,000 headers without bytes are 65 MB as objects; each piece has some 16."""
    with little_room():
        rows = [made.num_rows for made in through(NAMED, with_headers(50, 5_000))]
    assert sum(rows) == 50
    assert max(rows) <= 14  # the one with which a piece is full is in it


class Odd:
    """A message with a name of a header that is no UTF-8, of 300,000 bytes."""

    def headers(self) -> Any:
        """Raises what confluent-kafka raises."""
        return (b"\xff" * 300_000).decode()


def test_a_long_name_of_a_header_is_cut() -> None:
    """The reason has its beginning."""
    odd: Any = Odd()
    _, reasons = headers_of_all([odd])
    assert reasons[0].startswith("a header name b'\\xff")
    assert len(reasons[0]) < 500


def test_a_remembered_error_is_none() -> None:
    """What is refused is refused again."""
    identity = JsonKeyIdentity()
    for _ in range(2):
        with pytest.raises(DataError, match="no JSON"):
            identity.of((), b"[")


def test_all_in_all_a_chain_still_passes_plain_records() -> None:
    """With their headers, which it makes at once."""
    (made,) = applied({"type": "InsertHeader", "header": "h", "value.literal": "1"}, {"a": 1}, {"a": 2})
    assert made["headers"].to_pylist() == [[{"key": "h", "value": b"1"}]] * 2
