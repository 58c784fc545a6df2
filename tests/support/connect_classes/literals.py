"""Generates texts that Connect's `Values.parseString` reads: numbers, dates, lists, maps, and what is nearly one."""

from __future__ import annotations

from typing import Final

from tests.support.connect_classes.generated import Generator

_LEAVES: Final = (
    "1", "-1", "127", "128", "-70000", "3000000000", "9223372036854775808", "1.0", "1.5", "0.1", "1e3", "1e400",
    "1E-400", "+7", "-", "+", "1.", ".5", "0x1", "1_0", "123456789.123456789", "16777217.0", "3.5e38", "-0.0",
    "00", "1e39", "1d",
    "2026-01-31", "2019-08-23", "1582-10-04", "0001-01-01", "12:30:15.250Z", "2026-01-31T12:30:15.250Z",
    "12:30:15Z", "2026-13-41", "12\\:30\\:15.250Z", "true", "false", "TRUE", "null", "text", "a b", "",
    "ä", "\\", "a\\,b", "\\\"q", " 5 ", "2026-01-31 12:30",
)  # fmt: skip
_BLANKS: Final = ("", "", "", " ", "  ", "\t")


def literal(by: Generator) -> str:
    """Returns a text."""
    text = _one(by, 2)
    if by.is_so(0.1) and text:
        at = by.random.randrange(len(text))
        text = text[:at] + by.one_of("", ",", '"', "]", "}", ":", "\\", " ") + text[at + by.one_of(0, 1) :]
    return text.strip() or "x"


def _one(by: Generator, depth: int) -> str:
    kind = by.one_of("leaf", "leaf", "quoted", "list", "map") if depth else by.one_of("leaf", "leaf", "quoted")
    blank = by.one_of(*_BLANKS)
    if kind == "leaf":
        return f"{blank}{by.one_of(*_LEAVES)}{by.one_of(*_BLANKS)}"
    if kind == "quoted":
        return f'{blank}"{by.one_of(*_LEAVES)}"{by.one_of(*_BLANKS)}'
    few = range(by.random.randint(0, 3))
    if kind == "list":
        same = _one(by, depth - 1)
        return f"{blank}[{','.join(same if by.is_so(0.5) else _one(by, depth - 1) for _ in few)}]{by.one_of(*_BLANKS)}"
    keys = [_one(by, 0) for _ in few]
    if {"true", "false"} & {key.strip() for key in keys}:  # 1 or 0 next to them is refused (docs/transforms.md)
        keys = [key for key in keys if key.strip() not in ("1", "1.", "1.0", "00", "-0.0")]
    pairs = ",".join(f"{key}:{_one(by, depth - 1)}" for key in keys)
    return f"{blank}{{{pairs}}}{by.one_of(*_BLANKS)}"
