"""Generates schemas of every kind with their values, and records, each from one number: the same from the same one."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, Final, TypeVar

from hypothesis import strategies as st
from msgspec.structs import replace

from connectors.data.java_calendar import moment_of
from connectors.data.record import ConnectRecord, Header
from connectors.data.schema import BITS, DATE, DECIMAL, SCALE, TIME, TIMESTAMP, Field, Schema, Type
from connectors.data.values import bytes_of_int, float32
from tests.support.connect_classes.records import FIELDS, TOPICS

T = TypeVar("T")

_NAMES: Final = (*FIELDS, *FIELDS[:4], "b", "a_b", "key", "inner.id", "größe")
_PLAIN: Final = [kind for kind in Type if kind not in {Type.ARRAY, Type.MAP, Type.STRUCT}]
_LOGICAL: Final = {DATE: Type.INT32, TIME: Type.INT32, TIMESTAMP: Type.INT64, DECIMAL: Type.BYTES}
_KEYS: Final = (Type.STRING, Type.STRING, Type.INT32, Type.INT64, Type.BOOLEAN)
_TEXTS: Final = (
    "", " ", "a", "text", "true", "False", "TRUE", "0", "7", "-1", "+5", "127", "128", "-129", "40000", "70000", "007",
    "3000000000", "-9223372036854775808", "9223372036854775808", "1.5", "-0.0", "1e3", "1E400", "NaN", "Infinity",
    "0x10", " 12", "1.5f", "1_0", ".5", "5.", "\u0661", "2026-01-31", "2026-01-31 12:30:15.250",
    "1582-10-04 00:00:00.000",     "0001-01-01 00:00:00.000", "12000-01-01 00:00:00.000",
    "2026", "12", "null", "ä\u0000\U0001f600", 'q"\\', "é" * 40,
)  # fmt: skip
_MOMENTS: Final = (0, 1, -1, 86_399_999, 86_400_000, -86_400_000, 253_402_300_800_000, -62_135_769_600_000,
                   -62_135_769_600_001, -12_219_292_800_000, -12_219_292_800_001, 1_769_860_815_250)  # fmt: skip
# Java writes a double in the fewest digits that tell it from 19 on only, so those here have few.
_FLOATS: Final = (0.0, -0.0, 1.0, -1.5, 0.1, 1e10, 1e-10, 3.4e38, 1.7976931348623157e308, 123456.789, 1e7, 1e-3,
                  float("nan"), float("inf"), float("-inf"), 2.0**63, -(2.0**63), 2.0**31, 127.5, 128.0)  # fmt: skip


class Generator:
    """Makes schemas, values and records by chance.

    `plain_numbers`: none that JSON has no digits for, as NaN, or that its readers take in several ways, as -0.0.
    """

    def __init__(self, number: int, *, plain_numbers: bool = False) -> None:
        self.random = random.Random(number)
        self._plain_numbers = plain_numbers

    def is_so(self, share: float) -> bool:
        """Returns True in `share` of all cases."""
        return self.random.random() < share

    def one_of(self, *choices: T) -> T:
        """Returns one of `choices`."""
        return self.random.choice(choices)

    def schema(self, depth: int = 2, *, maps: bool = True) -> Schema:
        """Returns a schema of any type, logical ones among them, with or without each of its parts."""
        inner = [Type.STRUCT, Type.STRUCT, Type.ARRAY, *([Type.MAP] if maps else [])] if depth else []
        kind = self.one_of(*_PLAIN, *_LOGICAL, *inner)
        if isinstance(kind, str):
            scale = {SCALE: str(self.one_of(0, 2, 2, 7, -3, 30))} if kind == DECIMAL else None
            made = Schema(type=_LOGICAL[kind], name=kind, version=1, parameters=scale)
        elif kind is Type.STRUCT:
            return self.struct(depth - 1, maps=maps)
        else:
            keys = Schema(type=self.one_of(*_KEYS)) if kind is Type.MAP else None
            values = self.schema(depth - 1, maps=maps) if kind in {Type.ARRAY, Type.MAP} else None
            made = self._named(Schema(type=kind, key_schema=keys, value_schema=values), "n.Plain")
        return self._with_default(replace(made, optional=self.is_so(0.5)), 0.25)

    def struct(self, depth: int = 1, *, maps: bool = True) -> Schema:
        """Returns the schema of a struct with some of the names that cases use."""
        names = dict.fromkeys(self.random.choices(_NAMES, k=self.random.randint(0, 6)))
        fields = tuple(Field(name, self.schema(depth, maps=maps)) for name in names)
        # Without a default: Java compares that of a struct by its schema object, which no class passes on.
        return self._named(Schema(type=Type.STRUCT, fields=fields, optional=self.is_so(0.4)), "a.Row")

    def _named(self, schema: Schema, name: str) -> Schema:
        return replace(
            schema,
            name=name if self.is_so(0.3) else None,
            version=self.random.randint(1, 9) if self.is_so(0.2) else None,
            doc="About it." if self.is_so(0.2) else None,
            parameters={"p": "1", "q": ""} if self.is_so(0.2) else None,
        )

    def _with_default(self, schema: Schema, share: float) -> Schema:
        if schema.name == DECIMAL and self._plain_numbers:
            return schema
        return replace(schema, default=self._required(schema)) if self.is_so(share) else schema

    def value(self, schema: Schema) -> Any:
        """Returns a value of `schema` in its encoded form; some nulls where it is optional."""
        return None if schema.optional and self.is_so(0.25) else self._required(schema)

    def _required(self, schema: Schema) -> Any:
        if schema.name in _LOGICAL:
            return self._logical(schema)
        match schema.type:
            case Type.STRUCT:
                return {one.name: self.value(one.schema) for one in schema.fields}
            case Type.ARRAY:
                assert schema.value_schema is not None
                return [self.value(schema.value_schema) for _ in range(self.random.randint(0, 3))]
            case Type.MAP:
                assert schema.key_schema is not None
                assert schema.value_schema is not None
                keys = [self._required(schema.key_schema) for _ in range(self.random.randint(0, 3))]
                return {key: self.value(schema.value_schema) for key in keys}
            case kind if kind in BITS:
                return self._whole(BITS[kind])
        made: dict[Type, Callable[[], Any]] = {
            Type.FLOAT32: self._float32,
            Type.FLOAT64: self._float,
            Type.BOOLEAN: lambda: self.is_so(0.5),
            Type.STRING: self.text,
            Type.BYTES: lambda: self.random.randbytes(self.random.randint(0, 6)),
        }
        return made[schema.type]()

    def _logical(self, schema: Schema) -> Any:
        if schema.name == DECIMAL:
            return bytes_of_int(self.one_of(0, 1, -1, 5, 10**20, -(10**30), self.random.randint(-(10**9), 10**9)))
        if schema.name == TIME:
            return self.one_of(0, 1, 86_399_999, self.random.randrange(86_400_000))
        moment = self.moment()
        return moment // 86_400_000 if schema.name == DATE else moment

    def moment(self) -> int:
        """Returns a moment (ms), of years from before Christ to after 9999."""
        near, far = self.random.randint(-(10**12), 3 * 10**12), self.random.randint(-(10**14), 10**15)
        return self.one_of(near, near, far, self.one_of(*_MOMENTS))

    def _whole(self, bits: int) -> int:
        bound = 1 << (bits - 1)
        return self.one_of(0, 1, -1, 7, bound - 1, -bound, self.random.randrange(-bound, bound))

    def _float(self) -> float:
        few = self.random.randint(-(10**9), 10**9) / 64
        return few if self._plain_numbers else self.one_of(*_FLOATS, few)

    def date_text(self) -> str:
        """Returns a date as text, in one of several forms."""
        at = moment_of(self.moment())
        zone = self.one_of("", "", " Z", " +02", " -05:30")
        long = f"{at.day:02} Jun {at.year} {at.time[:5]}{zone}"
        return self.one_of(f"{at.date} {at.time[:-1]}", at.date, long, self.text())

    def _float32(self) -> float:
        few = self.random.randint(-(10**6), 10**6) / 8
        return few if self._plain_numbers else float32(self.one_of(*_FLOATS[:7], few))

    def text(self) -> str:
        """Returns a text, often one that stands for a number or a date."""
        return self.one_of(*_TEXTS)

    def plain(self, depth: int = 2) -> Any:
        """Returns a value without a schema, as JSON has them."""
        kind = self.random.randint(0, 7 if depth else 5)
        if kind == 6:
            return [self.plain(depth - 1) for _ in range(self.random.randint(0, 3))]
        if kind == 7:
            return self.plain_map(depth - 1)
        return (None, self.is_so(0.5), self._whole(64), self._float(), self.text(), self.text())[kind]

    def plain_map(self, depth: int = 2) -> dict[str, Any]:
        """Returns a map without a schema, with some of the names that cases use."""
        names = self.random.choices(_NAMES, k=self.random.randint(0, 5))
        return {name: self.plain(depth) for name in names}

    def side(self, *, maps: bool = True) -> tuple[Schema | None, Any]:
        """Returns a key or a value: mostly structs with a schema; also maps without one, single values, nulls."""
        kind = self.random.randint(0, 19)
        if kind == 0:
            return None, None
        if kind <= 4:
            return None, self.plain_map()
        if kind == 5:
            return None, self.plain()
        schema = self.struct(maps=maps) if kind <= 15 else self.schema(maps=maps)
        return schema, self.value(schema)

    def record(self, *, maps: bool = True) -> ConnectRecord:
        """Returns a record; some have no timestamp."""
        key_schema, key = self.side(maps=maps)
        value_schema, value = self.side(maps=maps)
        names = self.random.choices("hgx", k=self.random.randint(0, 3))
        headers = [Header(name, self.random.randbytes(2)) for name in names]
        timestamp = None if self.is_so(0.1) else self.random.randrange(10**13)
        return ConnectRecord(
            self.one_of(*TOPICS), self.random.randint(0, 3), self.random.randrange(1 << 40), timestamp,
            key_schema, key, value_schema, value, tuple(headers),
        )  # fmt: skip


def generated(make: Callable[[Generator], T], *, plain_numbers: bool = False) -> st.SearchStrategy[T]:
    """Returns a strategy of what `make` makes with a generator of its own for each number."""
    numbers = st.integers(0, (1 << 62) - 1)
    return numbers.map(lambda number: make(Generator(number, plain_numbers=plain_numbers)))
