"""Which rows have an erased key, whether the keys are known or only their hashes."""

from __future__ import annotations

import base64
import random
from collections.abc import Sequence

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from connectors.operations.erase.key_matcher import LEAST_BYTES, FormWindows, KeyMatcher
from connectors.operations.erase.receipt import erased_keys

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
