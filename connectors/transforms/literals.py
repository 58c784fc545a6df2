"""Reads a text as Connect reads literals: numbers, truth values, dates, lists and maps (`Values.parseString`).

A text that is none of them as a whole is itself. Within lists and maps a text stands between quotes; there it may be a
date too. A list has one schema for all of its members: numbers of several types are of the widest, and otherwise the
members say nothing of it.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any, Final, NamedTuple

from connectors.data.java_calendar import DAY_MS
from connectors.data.schema import (
    BITS,
    BOOLEAN,
    DATE,
    DATE_SCHEMA,
    DECIMAL,
    FLOAT32,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT64,
    SCALE,
    STRING,
    TIME,
    TIME_SCHEMA,
    TIMESTAMP,
    TIMESTAMP_SCHEMA,
    Schema,
    Type,
)
from connectors.data.values import Date, bytes_of_int, decimal_of, float32
from connectors.errors import DataError
from connectors.transforms.java_dates.date_format import DateFormat

Literal = tuple[Schema | None, Any]
"""A schema and its value in encoded form; two times None for a null."""

_DEEPEST: Final = 100
"""How many lists and maps may be within one another; beyond, a text is itself."""
_LONGEST_NUMBER: Final = 1_000
"""Characters of a number; one of more, which a setting could have, is a text."""
_BLANKS: Final = "".join(map(chr, range(33)))
"""What Java's `trim` takes away."""
_DELIMITERS: Final = ':,{}[]"'
_NUMBER: Final = re.compile(r"[+-]?(?:\d++(?:\.\d*+)?|\.\d++)(?:[eE][+-]?\d{1,9})?", re.ASCII)
_DATES: Final[dict[int, tuple[Schema, DateFormat]]] = {
    10: (DATE_SCHEMA, DateFormat("yyyy-MM-dd", 0)),
    13: (TIME_SCHEMA, DateFormat("HH:mm:ss.SSS'Z'", 0)),
    24: (TIMESTAMP_SCHEMA, DateFormat("yyyy-MM-dd'T'HH:mm:ss.SSS'Z'", 0)),
}
"""Dates by how many characters they have."""
_TEMPORAL: Final = frozenset({DATE, TIME, TIMESTAMP})
_WIDER: Final = (Type.INT8, Type.INT16, Type.INT32, Type.INT64, Type.FLOAT32, Type.FLOAT64)
_WORDS: Final[dict[str, Literal]] = {"null": (None, None), "true": (BOOLEAN, True), "false": (BOOLEAN, False)}


def parse_string(text: str) -> Literal:
    """Returns schema and value of `text`.

    Raises DataError for a map of which two keys are the same in Python, or a key is a list or a map, and for a time of
    day among dates, or a date among times.
    """
    schema, value = _literal_of(text)
    if (unheld := _unheld_in(value)) is not None:
        raise DataError(unheld.why)
    return schema, value


class _Unheld(NamedTuple):
    """Stands in a literal for what Connect reads and keyfold cannot hold; the text may still turn out to be no literal.

    `why` is the message. `held` is the form without a schema, if keyfold can hold that.
    """

    why: str
    held: Any = None


_KEYS_ALIKE: Final = _Unheld(
    "A map has true and 1, or false and 0, as keys, which keyfold cannot hold next to each other."
)
_NESTED_KEY: Final = _Unheld("A map has a list or a map as a key, which keyfold cannot hold.")
_MIXED_DATES: Final = "A list or map has a time of day among dates, or a date among times, which are neither."


def _unheld_in(value: Any) -> _Unheld | None:
    if isinstance(value, _Unheld):
        return value
    parts = [*value, *value.values()] if isinstance(value, dict) else value if isinstance(value, list) else ()
    return next((unheld for part in parts if (unheld := _unheld_in(part)) is not None), None)


def _literal_of(text: str) -> Literal:
    if not text:
        return STRING, text
    try:
        return _Reader(text).read(0)
    except _NotReadError:
        return STRING, text


class _NotReadError(Exception):
    """A text is no literal; never leaves this file."""


class _Tokens:
    """Cuts a text into delimiters and what is between them. A backslash keeps a delimiter from being one."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._end = 0
        """The position of the next token."""
        self._seen: str | None = None
        """The token before it, if it was looked at and not taken."""

    @property
    def has_next(self) -> bool:
        return self._seen is not None or self._end < len(self.text)

    @property
    def position(self) -> int:
        return self._end - len(self._seen or "")

    def go_to(self, position: int) -> None:
        self._end, self._seen = position, None

    def next(self) -> str:
        token = self._seen if self._seen is not None else self._cut()
        self._seen = None
        return token

    def take(self, expected: str) -> bool:
        """Takes the next token that is not blank if it is `expected`, blanks around it or not."""
        if not self.has_next:
            return False
        token = self._seen if self._seen is not None else self._cut()
        while not token.strip(_BLANKS) and self._end < len(self.text):
            token = self._cut()
        self._seen = None if token.strip(_BLANKS) == expected else token
        return self._seen is None

    def _cut(self) -> str:
        start, escaped = self._end, False
        while self._end < len(self.text):
            char = self.text[self._end]
            if char in _DELIMITERS and not escaped:
                if start == self._end:
                    self._end += 1
                break
            escaped = char == "\\" and not escaped
            self._end += 1
        return self.text[start : self._end]


class _Reader:
    """Reads one text."""

    def __init__(self, text: str) -> None:
        self._tokens = _Tokens(text)

    def read(self, depth: int) -> Literal:
        """Reads what comes next; at a `depth` of 0 that is the whole text. Raises _NotReadError."""
        tokens = self._tokens
        if depth > _DEEPEST:
            raise _NotReadError
        if depth and tokens.take('"'):
            return self._quoted()
        for word, literal in _WORDS.items():
            start = tokens.position
            if tokens.take(word) and (depth or not tokens.has_next):
                return literal
            tokens.go_to(start)
        start = tokens.position
        try:
            if tokens.take("["):
                return self._list(depth + 1)
            if tokens.take("{"):
                return self._map(depth + 1)
        except _NotReadError:
            tokens.go_to(start)
        return self._single()

    def _quoted(self) -> Literal:
        content = ""
        while self._tokens.has_next and not self._tokens.take('"'):
            content += self._tokens.next()
        if content[:1] in _BLANKS:
            return STRING, content  # Java trims a whole text before it looks for a date, and none between quotes
        literal = _literal_of(content)
        schema = literal[0]
        return literal if schema is not None and schema.name in _TEMPORAL else (STRING, content)

    def _list(self, depth: int) -> Literal:
        members: list[Literal] = []
        while self._tokens.has_next:
            if self._tokens.take("]"):
                schema = _common(members)
                return Schema(type=Type.ARRAY, value_schema=schema), [_of_schema(schema, member) for member in members]
            if self._tokens.take(","):
                break
            members.append(self._member(depth))
            self._separated("]")
        raise _NotReadError

    def _map(self, depth: int) -> Literal:
        keys: list[Literal] = []
        values: list[Literal] = []
        while self._tokens.has_next:
            if self._tokens.take("}"):
                return _map_of(keys, values)
            if self._tokens.take(","):
                break
            keys.append(self._member(depth))
            if keys[-1][1] is None or not self._tokens.take(":"):
                break
            values.append(self._member(depth))
            self._tokens.take(",")
        raise _NotReadError

    def _member(self, depth: int) -> Literal:
        return self.read(depth) if self._tokens.has_next else (None, None)

    def _separated(self, end: str) -> None:
        """Raises _NotReadError if neither a comma nor the end comes next."""
        position = self._tokens.position
        if self._tokens.take(end):
            self._tokens.go_to(position)
        elif not self._tokens.take(","):
            raise _NotReadError

    def _single(self) -> Literal:
        """Reads a date or a number. A text is one only as a whole; within lists it would stand between quotes."""
        token = self._tokens.next()
        if not token.strip(_BLANKS):
            return STRING, token
        token = token.strip(_BLANKS)
        if token[0].isdigit() and (date := self._date(token)) is not None:
            return date
        if len(token) <= _LONGEST_NUMBER and _NUMBER.fullmatch(token) and token[0] != ".":
            return _number(Decimal(token))
        raise _NotReadError

    def _date(self, token: str) -> Literal | None:
        """Returns a date: with a time it has colons, which make it five tokens."""
        position, rest = self._tokens.position, ""
        for _ in range(4):
            if not self._tokens.has_next:
                break
            rest += self._tokens.next()
        else:
            if (date := _date_of(token + rest)) is not None:
                return date
        self._tokens.go_to(position)
        return _date_of(token)


def _date_of(text: str) -> Literal | None:
    text = text.replace("\\:", ":")
    schema, form = _DATES.get(len(text), (None, None))
    if schema is None or form is None:
        return None
    try:
        ms = form.parse(text)
    except DataError:
        return None
    return schema, ms // DAY_MS if schema.name == DATE else ms


def _number(number: Decimal) -> Literal:
    sign, digits, exponent = number.as_tuple()
    assert isinstance(exponent, int)
    if number.adjusted() < 19 and number == number.to_integral_value():
        for schema in (INT8, INT16, INT32, INT64):
            bound = 1 << (BITS[schema.type] - 1)
            if -bound <= number < bound:
                return schema, int(number)
    if exponent:
        for schema, value in ((FLOAT32, float32(float(number))), (FLOAT64, float(number))):
            if abs(value) != float("inf"):
                return schema, value
    unscaled = int("".join(map(str, digits)))
    schema = Schema(type=Type.BYTES, name=DECIMAL, version=1, parameters={SCALE: str(-exponent)})
    return schema, bytes_of_int(-unscaled if sign else unscaled)


def _common(members: list[Literal]) -> Schema | None:
    """Returns the schema that all members are of but nulls: the last one's, of numbers the widest; None without one."""
    schemas = [schema for schema, _ in members if schema is not None]
    if not schemas:
        return None
    kinds = {candidate.type for candidate in schemas}
    if kinds <= set(_WIDER):
        return max(reversed(schemas), key=lambda candidate: _WIDER.index(candidate.type))
    return schemas[-1] if len(kinds) == 1 else None


def _map_of(keys: list[Literal], values: list[Literal]) -> Literal:
    if any(isinstance(key, list | dict | _Unheld) for _, key in keys):
        return Schema(type=Type.MAP), _NESTED_KEY
    key_schema = _common(keys)
    value_schema = _common(values) if key_schema is not None else None
    last = {_as_key(key): value for key, value in zip(keys, values, strict=True)}
    first = {_as_key(key): key for key in reversed(keys)}
    names = [_of_schema(key_schema, first[each]) for each in last]
    made = dict(zip(names, [_of_schema(value_schema, value) for value in last.values()], strict=True))
    if len(made) < len({(isinstance(name, bool), name) for name in names}):
        return Schema(type=Type.MAP), _KEYS_ALIKE
    return Schema(type=Type.MAP, key_schema=key_schema, value_schema=value_schema), made


def _as_key(literal: Literal) -> tuple[object, ...]:
    """Returns what a key is known by before it gets the common schema: in Java all dates are of one class.

    Of keys that are the same the last value counts, and no other one has to fit the schema of the values.
    """
    schema, value = literal
    assert schema is not None  # the key of a map is no null
    if schema.name in _TEMPORAL:
        return Type.INT64, TIMESTAMP, (_plain(schema, value) if schema.name == DATE else value)
    return schema.type, (schema.parameters or {}).get(SCALE), value


def _of_schema(schema: Schema | None, literal: Literal) -> Any:
    """Returns the value of a member: in its encoded form with a schema, which no null has, or without one."""
    own, value = literal
    if isinstance(value, _Unheld):
        return value
    if schema is None or own is None:
        if schema is not None:
            raise _NotReadError
        return _plain(own, value)
    if own.name in _TEMPORAL and own.name != schema.name:
        if schema.name not in _TEMPORAL:
            raise _NotReadError
        moment = _plain(own, value)
        days, of_day = divmod(moment, DAY_MS)
        if (schema.name == DATE and of_day) or (schema.name == TIME and days):
            return _Unheld(_MIXED_DATES, moment)
        return days if schema.name == DATE else days * DAY_MS + of_day
    return _plain_or_widened(schema, own, value)


def _plain_or_widened(schema: Schema, own: Schema, value: Any) -> Any:
    """Returns a member of schema `own` in the encoded form of the common `schema`, if it has one there."""
    match schema.type:
        case Type.FLOAT32:
            return float32(float(value))
        case Type.FLOAT64:
            return float(value)
        case Type.INT32 if schema.name == TIME and own.name != TIME and not 0 <= value <= DAY_MS:
            raise _NotReadError  # org.apache.kafka.connect.data.Time.toLogical
        case Type.ARRAY | Type.MAP if own != schema:
            # Of several lists or maps the last one's schema counts, and what is in the others may be of another.
            return _plain(own, value)
    return value


def _plain(schema: Schema | None, value: Any) -> Any:
    """Returns a value in the form that it has without a schema."""
    if isinstance(value, _Unheld):
        return value if value.held is None else value.held
    if schema is None or value is None:
        return value
    match schema.type:
        case Type.ARRAY:
            return [_plain(schema.value_schema, item) for item in value]
        case Type.MAP:
            pairs = value.items()
            return {_plain(schema.key_schema, name): _plain(schema.value_schema, item) for name, item in pairs}
    if schema.name == DECIMAL:
        return decimal_of(schema, value)
    return value if schema.name is None else Date(value * DAY_MS if schema.name == DATE else value)
