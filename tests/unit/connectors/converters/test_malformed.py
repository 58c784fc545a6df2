"""Bytes that are not what a converter reads are errors of that record: never another one, and never for long."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator

import pytest

from connectors.converters.converter import Converter
from connectors.converters.names import CONVERTERS
from connectors.errors import DataError
from connectors.options import read

CONFIGS = {
    "Json": {"schemas.enable": "false"},
    "json with schemas": {"schemas.enable": "true"},
    "String": {},
    "Integer": {},
    "Boolean": {},
}
LONGEST_S = 2.0


def _made(name: str) -> Converter:
    kind = CONVERTERS.find("Json" if name.startswith("json") else name).of.load()
    made = kind(read(kind.OPTIONS, CONFIGS[name]), is_key=False)
    assert isinstance(made, Converter)
    return made


def _malformed() -> Iterator[bytes]:
    """Yields thousands: cut off, changed in a byte, deep, huge, not UTF-8."""
    chance = random.Random(20)
    struct = {"type": "struct", "fields": [{"type": "int32", "field": "a"}, {"type": "string", "field": "b"}]}
    sound = [
        json.dumps({"schema": struct, "payload": {"a": 1, "b": "ä"}}).encode(),
        json.dumps({"a": [1, 2.5, None, {"b": "c"}], "d": True}).encode(),
    ]
    for text in sound:
        yield from (text[:end] for end in range(len(text)))
        for _ in range(1_500):
            changed = bytearray(text)
            for _ in range(chance.randint(1, 3)):
                changed[chance.randrange(len(changed))] = chance.randrange(256)
            yield bytes(changed)
    deep = 100_000
    yield from (b"[" * deep, b"[" * deep + b"]" * deep, b'{"a":' * deep + b"1" + b"}" * deep, b'{"schema":' * deep)
    yield from (b"1" * 10_000_000, b"-" * 100_000, b'"' + b"a" * 5_000_000, b"1e999999999", b"\xff\xfe", b"", b" ")
    yield b'{"schema":{"type":"array","items":{"type":"array"}},"payload":[]}'


@pytest.mark.parametrize("name", CONFIGS)
def test_malformed_bytes_are_an_error_of_the_record(name: str) -> None:
    """A value or a DataError comes, within a moment."""
    converter, refused = _made(name), 0
    for data in _malformed():
        began = time.monotonic()
        message = _refusal(converter, data)
        assert time.monotonic() - began < LONGEST_S
        assert message is None or 0 < len(message) < 3_000
        refused += message is not None
    assert refused > 100


def _refusal(converter: Converter, data: bytes) -> str | None:
    try:
        converter.to_connect_data("t", [], data)
    except DataError as error:
        return error.message
    return None
