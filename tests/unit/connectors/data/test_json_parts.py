"""Large JSON is decoded in parts, and what comes of it is what one call makes."""

from __future__ import annotations

import json
import random
import time
from typing import Any

import msgspec
import pytest

from connectors.converters.json.values import exact
from connectors.data.json_parts import LARGE, decoded_in_parts
from connectors.data.pace import limited

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


@pytest.mark.parametrize("sent", [b"{%s}", b"[%s]", b'{"a":{%s}}', b"[1,%s]", b'{"a":1,%s}', b"[%s,1]", b"[1,%s,2]"])
def test_blanks_are_members_of_nothing(sent: bytes) -> None:
    """However many there are."""
    filled = sent % (b" " * 100)
    wanted = outcome(DECODERS["plain"].decode, filled)
    assert outcome(decoded_in_parts, DECODERS["plain"].decode, filled, 8, 8) == wanted


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
