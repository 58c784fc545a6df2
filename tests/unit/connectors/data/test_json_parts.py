"""Large JSON is decoded in parts, and what comes of it is what one call makes."""

from __future__ import annotations

import json
import random
import time
from typing import Any

import msgspec
import pytest

from connectors.converters.json.values import exact
from connectors.data.bounds import DEEPEST
from connectors.data.json_parts import LARGE, decoded_in_parts
from connectors.data.pace import limited
from connectors.errors import DataError

DECODERS = {"plain": msgspec.json.Decoder(), "exact": msgspec.json.Decoder(float_hook=exact)}
TEXTS = ["", "a", 'q"uote', "back\\slash", "\\\\", '\\"', "[", "]", "{", "}", ",", ":", "ä€😀", "\n\t", 'x,"y":{1]']
SIZES = [(4, 1), (8, 3), (16, 5), (64, 30), (200, 16)]
"""From how many bytes on a text is large, and how many a part has."""


def value(chance: random.Random, depth: int) -> Any:
    """Returns any JSON value."""
    kind = chance.randrange(7 if depth else 5)
    if kind < 2:
        return "".join(chance.choices(TEXTS, k=chance.randrange(4)))
    if kind < 5:
        return chance.choice([None, True, False, 0, -7, 1.5, 1e300, 12345678901])
    count = chance.choice([0, 1, 2, 5, 20])
    if kind == 5:
        return [value(chance, depth - 1) for _ in range(count)]
    return {chance.choice(TEXTS) + str(chance.randrange(9)): value(chance, depth - 1) for _ in range(count)}


def text(chance: random.Random) -> bytes:
    """Returns JSON with blanks here and there, some of its members twice."""
    made = json.dumps(value(chance, 4), ensure_ascii=chance.random() < 0.5, indent=chance.choice([None, 0, 3]))
    if made.startswith('{"') and chance.random() < 0.3:
        made = f"{made[:-1].rstrip()},{made[1:]}"
    return (chance.choice(["", " "]) + made + chance.choice(["", "\r\n "])).encode()


def outcome(decode: Any, *args: Any) -> Any:
    """Returns what a call gives, with the order of members; that it was refused otherwise."""
    try:
        return repr(decode(*args))
    except (msgspec.DecodeError, UnicodeDecodeError):
        return "refused"


@pytest.mark.parametrize("kind", DECODERS)
def test_any_json_is_what_one_call_makes_of_it(kind: str) -> None:
    """Members of any kind, with quotes, brackets and backslashes in texts; what is no JSON is none."""
    chance, decode, refused = random.Random(20261127), DECODERS[kind].decode, 0
    for _ in range(800):
        sent = text(chance)
        if chance.random() < 0.5:
            at = chance.randrange(len(sent) + 1)
            sent = sent[:at] + chance.choice([b"", b",", b'"', b"]", b"}", b"[", b"{", b"\\", b" ,"]) + sent[at + 1 :]
        wanted = outcome(decode, sent)
        refused += wanted == "refused"
        large, part = chance.choice(SIZES)
        assert outcome(decoded_in_parts, decode, sent, large, part) == wanted, (sent, large, part)
    assert 100 < refused < 600


BLANKS = [
    b"{%s}",
    b"[%s]",
    b'{"a":{%s}}',
    b"[1,%s]",
    b'{"a":1,%s}',
    b"[%s,1]",
    b"{%s,1}",
    b"[1,%s,2]",
    b"[1,%s",
    b"[%s",
]


@pytest.mark.parametrize("sent", BLANKS)
def test_blanks_are_members_of_nothing(sent: bytes) -> None:
    """However many there are; the error says the byte that one call does."""
    filled = sent % (b" " * 100)
    wanted = said(DECODERS["plain"].decode, filled)
    assert said(decoded_in_parts, DECODERS["plain"].decode, filled, 24, 8) == wanted


MOST = 8 << 20


def deep(levels: int) -> bytes:
    """Returns 8 MiB of JSON in lists and objects by turns, each with a member before and after the large one."""
    inner = b"[" + b"1," * (MOST // 2) + b"1]"
    for level in range(levels):
        inner = b"[0," + inner + b",0]" if level % 2 else b'{"a":0,"b": ' + inner + b',"c":0}'
    return inner


SHAPES = {
    "a list": deep(0),
    "within five": deep(5),
    "within twenty": deep(20),
    "within as many as may be": deep(DEEPEST - 1),
    "blanks between commas": b"[" + b"1," * (MOST // 4) + b" " * (MOST // 2) + b",1]",
    "blanks before the end": b'{"a":[' + b"1," * (MOST // 4) + b" " * (MOST // 2) + b"]}",
    "blanks around": b"[1," + (b" " * (MOST // 8) + b"1" + b" " * (MOST // 8) + b",") * 4 + b"1]",
    "without its end": b"[" + b"1," * (MOST // 2) + b"1",
    "without its ends": b'{"a":[[' + b"1," * (MOST // 2) + b"1]",
    "with another end": b"[" + b"1," * (MOST // 2) + b"1}",
    "with more after its end": b"[[" + b"1," * (MOST // 2) + b"1]] 1",
    "without a colon": b'{"a" [' + b"1," * (MOST // 2) + b"1]}",
}


@pytest.mark.parametrize("name", SHAPES)
def test_no_call_decodes_more_than_what_is_not_large(name: str) -> None:
    """Whatever the shape, valid or not, no other thread waits for longer than for LARGE bytes."""
    decode, calls = DECODERS["plain"].decode, list[int]()

    def counted(part: bytes) -> Any:
        calls.append(len(part))
        return decode(part)

    sent = SHAPES[name]
    made, wanted = said(decoded_in_parts, counted, sent), said(decode, sent)
    assert (isinstance(made, str) and isinstance(wanted, str)) or made == wanted
    assert max(calls) <= LARGE + 2


def test_large_members_that_are_too_deep_are_refused() -> None:
    """Before they are decoded: without a schema no value may be so deep."""
    with pytest.raises(DataError, match="nested deeper than 200 levels"):
        decoded_in_parts(DECODERS["plain"].decode, deep(DEEPEST))


@pytest.mark.parametrize("letter", [b"a", rb"\"", rb"\\", rb"\u00e9"])
def test_a_key_may_be_as_large_as_its_value(letter: bytes) -> None:
    """Its end is looked for a part at a time."""
    key = letter * (MOST // 2 // len(letter))
    sent = b'{"' + key + b'" : [' + b"1," * (MOST // 4) + b"1],\n" + b'"' + key + b'":2,"b":[2]}'
    wanted = DECODERS["plain"].decode(sent)
    assert decoded_in_parts(DECODERS["plain"].decode, sent) == wanted


def said(decode: Any, *args: Any) -> Any:
    """Returns what a call gives, or the text of its error."""
    try:
        return decode(*args)
    except msgspec.DecodeError as error:
        return str(error)


@pytest.mark.parametrize("sent", [b"[%s1]", b"[1%s]", b'{"a":{"b":%s1}}'])
def test_blanks_are_passed_over_by_one_call(sent: bytes) -> None:
    """8 MiB of them take at most 0.08 s so, and 0.3 to 0.5 s one by one."""
    filled, took = sent % (b" " * (8 << 20)), list[float]()
    for _ in range(3):
        began = time.thread_time()
        decoded_in_parts(DECODERS["plain"].decode, filled)
        took.append(time.thread_time() - began)
    assert min(took) < 0.2


def test_backslashes_may_lie_on_both_sides_of_a_border() -> None:
    """Whether a quote ends a text depends on how many stand before it."""
    for count in range(40):
        sent = json.dumps([["\\" * count + '"', "],["], ["x" * 20], "\\" * 40]).encode()
        for part in range(1, 30):
            assert decoded_in_parts(DECODERS["plain"].decode, sent, 3 * part, part) == json.loads(sent)


def test_an_error_says_the_byte_of_the_whole_text() -> None:
    """As one call does."""
    sent = b"[" + b"1," * 1_000 + b"x,2]"
    with pytest.raises(msgspec.DecodeError, match=r"\(byte 2001\)"):
        DECODERS["plain"].decode(sent)
    with pytest.raises(msgspec.DecodeError, match=r"\(byte 2001\)"):
        decoded_in_parts(DECODERS["plain"].decode, sent, 100, 50)


def test_it_is_given_up_in_its_midst() -> None:
    """The limit of a portion is asked after each part, also of a member that is large itself."""

    class OverError(Exception):
        pass

    def over() -> None:
        raise OverError

    sent = b'{"a":[' + b"1," * LARGE + b"1]}"
    with limited(over), pytest.raises(OverError):
        decoded_in_parts(DECODERS["plain"].decode, sent)
    assert len(decoded_in_parts(DECODERS["plain"].decode, sent)["a"]) == LARGE + 1
