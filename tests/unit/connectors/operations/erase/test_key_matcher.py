"""Which rows have an erased key, whether the keys are known or only their hashes."""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Sequence

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from connectors.operations.erase.key_matcher import LEAST_BYTES, FormWindows, KeyMatcher
from connectors.operations.erase.receipt import erased_keys
from connectors.typed.unite import SOURCE

SALT = bytes(range(16))
KEYS = [b"alice-of-long-name", b'{"id": 7, "at": "x"}', b"\xff\x00\xfe-and-more"]


def _matcher(keys: Sequence[bytes] = KEYS, *, known: bool) -> KeyMatcher:
    return KeyMatcher(SALT, erased_keys(SALT, keys), keys if known else None)


def _numbers(matcher: KeyMatcher, column: pa.Array) -> list[int] | None:
    numbers = matcher.numbers(column)
    return None if numbers is None else numbers.tolist()


@pytest.mark.parametrize("known", [True, False])
def test_keys_of_bytes_are_compared_whole(known: bool) -> None:
    """By the keys or by their hashes: the same rows; null and other keys are none."""
    column = pa.array([b"bob", KEYS[0], None, KEYS[2], KEYS[0] + b"x", KEYS[1]], pa.binary())
    assert _numbers(_matcher(known=known), column) == [-1, 0, -1, 2, -1, 1]
    assert _numbers(_matcher(known=known), column.slice(1, 3)) == [0, -1, 2]
    assert _numbers(_matcher(known=known), pa.array([], pa.binary())) == []


@pytest.mark.parametrize("known", [True, False])
def test_typed_keys_are_compared_as_json(known: bool) -> None:
    """The order of fields and spaces do not count; of JSON with a schema the payload does."""
    enveloped = b'{"schema":{"type":"int32"},"payload":8}'
    matcher = _matcher([KEYS[1], enveloped], known=known)
    of_struct = pa.array([{"id": 7, "at": "x"}, {"id": 7, "at": "y"}, None])
    assert _numbers(matcher, of_struct) == [0, -1, -1]
    assert _numbers(matcher, pa.array([7, 8])) == [-1, 1]


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize(
    ("key", "others"),
    [
        (b'{"id":1}', [{"id": 2, "region": "eu"}]),
        (b'{"id":1,"region":null,"at":{"x":null,"y":[1,null]}}', [{"id": 2, "region": "eu", "at": {"x": 1}}]),
        (b'{"id":1,"tags":[],"more":{}}', [{"id": 2, "tags": ["a"], "more": {"b": True}}]),
        (b'{"id":1,"tags":[],"more":{}}', [{"id": 2, "tags": "text", "more": "text"}]),
        (b'"alice"', [{"value": "bob", "region": "eu"}]),
        (b'{"value":7}', [3]),
        (b'{"schema":{"type":"struct"},"payload":{"id":1}}', [{"id": 2, "region": "eu"}]),
    ],
)
def test_a_typed_key_is_told_among_others_of_any_form(key: bytes, others: list[object], known: bool) -> None:
    """A column has the fields of all keys, with nulls in those that a key lacks; whatever it has there is that key."""
    payload = json.loads(key)
    payload = payload.get("payload", payload) if isinstance(payload, dict) else payload
    first = others[0]
    if isinstance(first, dict):
        own = payload if isinstance(payload, dict) else {"value": payload}
        own = {name: str(part) if part in ([], {}) and first[name] == "text" else part for name, part in own.items()}
        row: object = {name: own.get(name) for name in {**first, **own}}
    else:
        row = payload["value"]
    assert _numbers(_matcher([key], known=known), pa.array([first, row, None])) == [-1, 0, -1]


@pytest.mark.parametrize(
    ("key", "kind"),
    [
        (b'{"id":1}', pa.struct([("id", pa.float64())])),
        (b'{"ID":1}', pa.struct([pa.field("ID_2", pa.int64(), metadata={SOURCE: b"ID"})])),
        (b'{"id":19000}', pa.struct([("id", pa.date32())])),
        (b'{"id":"AAA="}', pa.struct([("id", pa.binary())])),
        (b'{"id":{"a":"b"}}', pa.struct([("id", pa.map_(pa.string(), pa.string()))])),
        (b'{"schema":{"type":"struct","default":1},"payload":{"id":1}}', pa.struct([("id", pa.int64())])),
        (b"12345678", pa.int64()),
        (b"{}", pa.int64()),
    ],
)
def test_typed_keys_that_json_does_not_tell_are_not_compared(key: bytes, kind: pa.DataType) -> None:
    """A column of another form than JSON's: to find nothing there would say that nothing is left."""
    far = pa.array([2**31 - 1], pa.int32()).view(pa.date32())  # a date that Python has not
    column = (
        pa.StructArray.from_arrays([far], ["id"]) if kind == pa.struct([("id", pa.date32())]) else pa.nulls(1, kind)
    )
    assert _numbers(_matcher([key], known=True), column) is None


@pytest.mark.parametrize("known", [True, False])
def test_keys_are_compared_by_their_identity(known: bool) -> None:
    """The bytes of a row may be others than those that are erased; for Avro no receipt tells which."""
    key, identity = b'{"x":2,"id":1}', b'{"id":1,"x":2}'
    erased = erased_keys(SALT, [key], [identity])
    keys = pa.array([b'{"id": 1.0, "x": 2}', key, b'{"id":1}', b"no json", None, identity], pa.binary())
    matcher = KeyMatcher(SALT, erased, [key] if known else None, "json")
    assert _numbers(matcher, keys) == [0, 0, -1, -1, -1, 0]
    compared = pa.array([None, None, None, b"no json", None, identity], pa.binary())
    assert matcher.numbers_kept(keys, compared).tolist() == [-1, 0, -1, -1, -1, 0]
    assert _numbers(KeyMatcher(SALT, erased, [key], "avro"), keys) is None
    assert _numbers(KeyMatcher(SALT, erased_keys(SALT, [key]), None, "json"), keys) is None


@pytest.mark.parametrize("known", [True, False])
def test_a_receipt_of_another_identity_still_finds_what_a_resync_has_brought_back(known: bool) -> None:
    """By bytes each spelling of an erased key is a key of its own again; by an identity it is still that key."""
    key, identity = b'{"x":2,"id":1}', b'{"id":1,"x":2}'
    spelled = pa.array([b'{"id": 1, "x": 2}', key, b"no json", b'{"id":2}'], pa.binary())
    by_identity = KeyMatcher(SALT, erased_keys(SALT, [key], [identity]), [key] if known else None)
    assert by_identity.numbers_kept(spelled, spelled).tolist() == [0, 0, -1, -1]
    assert _numbers(by_identity, spelled) == [0, 0, -1, -1]
    by_bytes = KeyMatcher(SALT, erased_keys(SALT, [key]), [key] if known else None, "json")
    compared = pa.array([identity, identity, b"no json", b'{"id":2}'], pa.binary())
    assert by_bytes.numbers_kept(spelled, compared).tolist() == [-1, 0, -1, -1]


@pytest.mark.parametrize("known", [True, False])
def test_text_is_compared_as_it_is_and_as_json(known: bool) -> None:
    """A converter of texts has the key itself, one of JSON has it without its quotes."""
    assert _numbers(_matcher([b"alice", b'"bob"'], known=known), pa.array(["alice", "bob", "x", None])) == [
        0,
        1,
        -1,
        -1,
    ]


def test_typed_keys_need_keys_of_json() -> None:
    """If one of the keys is no JSON, nothing tells whether a number or a struct is that key."""
    assert _numbers(_matcher(known=True), pa.array([7])) is None


def test_bytes_are_searched_in_each_form() -> None:
    """As they are, escaped in JSON, in base64; but no key so short that any file has it."""
    matcher = _matcher(known=True)
    assert matcher.searches_bytes
    for form in (KEYS[0], base64.b64encode(KEYS[2]), b'"{\\"id\\": 7, \\"at\\": \\"x\\"}"', b'[{"at":"x","id":7}]'):
        assert matcher.is_in(b"before " + form + b" after"), form
    assert not matcher.is_in(b"alice-of-long-nam")
    assert not _matcher([b"7"], known=True).is_in(b"7" * 100)
    assert not _matcher([b"7"], known=True).searches_bytes
    assert not _matcher(known=False).searches_bytes


@example(forms={b"aaaaaab", b"aaaaaabbb"}, data=b"aaaaaaab")
@example(forms={b"aaaaaabab", b"aaaaaabb"}, data=b"aaaaaaabab")
@example(forms={b"aaaaaabab", b"aaaaaabb"}, data=b"aaaaaaabba")
@given(
    forms=st.sets(st.text("ab", min_size=LEAST_BYTES, max_size=12).map(str.encode), min_size=1),
    data=st.text("ab", max_size=60).map(str.encode),
)
def test_windows_tell_the_same_as_a_search_for_each_form(forms: set[bytes], data: bytes) -> None:
    """Also of forms that begin alike, and of data that is shorter than any."""
    assert FormWindows(frozenset(forms)).is_in(data) == any(form in data for form in forms)


@pytest.mark.parametrize("at", [0, (1 << 20) - 3, (1 << 20) + 5, (2 << 20) - 9])
def test_one_of_many_keys_is_found_wherever_it_stands(at: int) -> None:
    """At the ends of the data, and over the end of a block; all forms of it are looked for."""
    keys = [b"customer-%06d" % number for number in range(1000)]
    matcher = _matcher(keys, known=True)
    data = bytearray(random.Random(at).randbytes(2 << 20))
    assert not matcher.is_in(bytes(data))
    data[at : at + 15] = keys[777]
    assert matcher.is_in(bytes(data))
    assert matcher.is_in(b"x" * 7 + base64.b64encode(keys[3]))
    assert not matcher.is_in(b"customer-00100")
