"""Random workloads for the comparison with Kafka's cleaner, a pure function of the seed."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from tests.support.kafka import Headers

PLAIN: Final = ("none", "gzip", "snappy", "lz4", "zstd")
"""Producers without transactions, named after the codec of their batches."""

TRANSACTIONAL: Final = {"tx-a": "lz4", "tx-b": "zstd", "tx-c": "none"}
"""Producers with transactions, and the codec of their batches."""

BASE_MS: Final = 1_700_000_000_000
_DAY_MS: Final = 86_400_000

# A control record's key is its version and its type, two bytes each: 0 for an abort, 1 for a commit.
ODD_KEYS: Final = (b"", b"\x00", b"\x00\x00\x00\x00", b"\x00\x00\x00\x01", b"\xff\xfe\x80", b"k" * 300, b"k", b"k\x00")
ODD_HEADERS: Final[tuple[Headers, ...]] = (
    [("h", b"1"), ("h", b"2"), ("h", b"1")],
    [("h", None), ("h", b"")],
    [("", b"\x00\xff")],
    [("b", b"1"), ("a", None), ("b", None)],
    [("sch\u00f6n", b"x" * 40)],
    [("keyfold.source.offset", b"7")],
)


class Entry(NamedTuple):
    """A record to send."""

    key: bytes
    value: bytes | None
    headers: Headers = ()
    timestamp_ms: int = BASE_MS


class Send(NamedTuple):
    """Records that one producer sends at once; the first Send of a transactional one begins its transaction."""

    producer: str
    entries: tuple[Entry, ...]


class End(NamedTuple):
    """The end of a producer's transaction: a marker in the log, at an offset of its own."""

    producer: str
    commit: bool


Operation: TypeAlias = Send | End

# Offset 0 is for a key of its own, as the documentation begins at 1.
_DOCUMENTED: Final = (b"before", b"1001", b"1002", b"1003", b"1002", b"1001", b"1001")
DOCUMENTATION: Final = (Send("none", tuple(Entry(key, b"v%d" % at) for at, key in enumerate(_DOCUMENTED))),)
"""The worked example of Kafka's documentation."""


@dataclass(frozen=True)
class _Habits:
    """Shares (0 to 1) that differ between workloads."""

    keys: int
    odd: float
    once: float
    tombstones: float
    empty: float
    headers: float
    transactions: float
    aborts: float
    spread_ms: int


def generate(seed: int) -> tuple[Operation, ...]:
    """Returns the workload of `seed`, at whose end every transaction has ended."""
    chance = random.Random(seed)
    habits = _habits(chance)
    return (*_operations(chance, habits, steps=chance.randint(15, 45)),)


def length(operations: Sequence[Operation]) -> int:
    """Returns how many offsets the operations take: one for each record and each marker."""
    return sum(len(one.entries) if isinstance(one, Send) else 1 for one in operations)


def _habits(chance: random.Random) -> _Habits:
    return _Habits(
        keys=chance.choice((1, 3, 8, 30)),
        odd=chance.choice((0.0, 0.2, 0.5)),
        once=chance.choice((0.0, 0.1, 0.4)),
        tombstones=chance.choice((0.0, 0.15, 0.3, 0.5)),
        empty=chance.choice((0.0, 0.1, 0.2)),
        headers=chance.choice((0.0, 0.2, 0.5)),
        transactions=chance.choice((0.0, 0.3, 0.7)),
        aborts=chance.choice((0.0, 0.4, 0.6, 1.0)),
        spread_ms=chance.choice((0, 1_000, 30 * _DAY_MS)),
    )


def _operations(chance: random.Random, habits: _Habits, steps: int) -> Iterator[Operation]:
    """Yields operations of one producer at a time, then the ends of the open transactions."""
    running: set[str] = set()
    for step in range(steps):
        name = chance.choice((*TRANSACTIONAL,)) if chance.random() < habits.transactions else chance.choice(PLAIN)
        if name in running and chance.random() < 0.4:
            running.discard(name)
            yield End(name, chance.random() >= habits.aborts)
            continue
        running |= {name} & TRANSACTIONAL.keys()
        yield Send(name, tuple(_entry(chance, habits, f"{step}-{n}") for n in range(chance.randint(1, 10))))
    for name in sorted(running):
        yield End(name, chance.random() >= habits.aborts)


def _entry(chance: random.Random, habits: _Habits, at: str) -> Entry:
    return Entry(
        key=_key(chance, habits, at),
        value=_value(chance, habits, at),
        headers=chance.choice(ODD_HEADERS) if chance.random() < habits.headers else (),
        timestamp_ms=BASE_MS + chance.randint(-habits.spread_ms, habits.spread_ms),
    )


def _key(chance: random.Random, habits: _Habits, at: str) -> bytes:
    if chance.random() < habits.odd:
        return chance.choice(ODD_KEYS)
    if chance.random() < habits.once:
        return b"once-" + at.encode()
    return b"key-%d" % chance.randrange(habits.keys)


def _value(chance: random.Random, habits: _Habits, at: str) -> bytes | None:
    kind = chance.random()
    if kind < habits.tombstones:
        return None
    if kind < habits.tombstones + habits.empty:
        return b""
    return at.encode() + chance.choice((b"", b" " * 150, chance.randbytes(40)))
