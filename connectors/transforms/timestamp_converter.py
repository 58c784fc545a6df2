"""Gives moments another form: text, Unix time, or Connect's Date, Time and Timestamp (`TimestampConverter`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from msgspec.structs import replace

from connectors.clock import SystemClock
from connectors.data.bounds import is_int
from connectors.data.java_calendar import DAY_MS
from connectors.data.kept import OfSchema
from connectors.data.record import ConnectRecord
from connectors.data.schema import (
    DATE,
    DATE_SCHEMA,
    INT64,
    STRING,
    TIME,
    TIME_SCHEMA,
    TIMESTAMP,
    TIMESTAMP_SCHEMA,
    Field,
    Schema,
    Type,
)
from connectors.data.values import Date
from connectors.errors import DataError
from connectors.options import REQUIRED, Option, OptionsError
from connectors.transforms.java_dates.date_format import DateFormat
from connectors.transforms.transform import Side, SidedTransform
from connectors.transforms.values import REPLACE_NULL, basics, require_map, require_struct, with_fields

_PURPOSE: Final = "converting timestamp formats"
_TARGETS: Final = {
    "string": STRING,
    "unix": INT64,
    "Date": DATE_SCHEMA,
    "Time": TIME_SCHEMA,
    "Timestamp": TIMESTAMP_SCHEMA,
}
_PER_SECOND: Final = {"seconds": 1, "milliseconds": 1_000, "microseconds": 1_000_000, "nanoseconds": 1_000_000_000}
# The bound of Java's long: moments beyond it are cut there.
_LONG: Final = 1 << 63


def _check_format(pattern: str) -> str | None:
    try:
        DateFormat(pattern, 0)
    except ValueError as error:
        return str(error)
    return None


class TimestampConverter(SidedTransform):
    """A null stays null. Days and times of day are those of UTC."""

    OPTIONS = (
        Option("field", "STRING", "", "The field; none: the whole key or value.", importance="HIGH"),
        Option("target.type", "STRING", REQUIRED, "The new form.", allowed=tuple(_TARGETS), importance="HIGH"),
        Option("format", "STRING", "", "The pattern of a text, as SimpleDateFormat has it.", check=_check_format),
        Option(
            "unix.precision",
            "STRING",
            "milliseconds",
            "What Unix time counts.",
            allowed=tuple(_PER_SECOND),
            any_case=True,
            importance="LOW",
        ),
        REPLACE_NULL,
    )

    def __init__(self, options: Mapping[str, Any], side: Side) -> None:
        super().__init__(options, side)
        self._field: str = options["field"]
        self._target: str = options["target.type"]
        if self._target == "string" and not options["format"]:
            raise OptionsError([("format", "missing; target.type=string needs it.")])
        self._format = DateFormat(options["format"], SystemClock().now_ms()) if options["format"] else None
        self._per_second = _PER_SECOND[options["unix.precision"].lower()]
        self._updated = OfSchema(self._converted)

    def apply(self, record: ConnectRecord) -> ConnectRecord:
        """See `Transform`."""
        schema, value = self.operating(record)
        if schema is None:
            return self.new_record(record, None, self._without_schema(value))
        updated, convert = self._updated(schema)
        return self.new_record(record, updated, convert(value))

    def _without_schema(self, value: Any) -> Any:
        if value is None or not self._field:
            return self._target_of(self._moment(value), plain=False) if value is not None else None
        entries = require_map(value, _PURPOSE)
        held = entries.get(self._field)
        return {**entries, self._field: None if held is None else self._target_of(self._moment(held), plain=False)}

    def _converted(self, schema: Schema) -> tuple[Schema, Callable[[Any], Any]]:
        if not self._field:
            return self._typed(schema), self._converter(schema)
        fields = [
            Field(field.name, self._typed(field.schema) if field.name == self._field else field.schema)
            for field in schema.fields
        ]
        if schema.type is not Type.STRUCT:
            raise DataError(f"There is no field {self._field} in a {schema.type.value}.")
        converters = OfSchema(self._converter)  # a field that is no moment is an error once there is a struct

        def convert(value: Any) -> Any:
            if value is None:
                return None
            struct = require_struct(schema, value, _PURPOSE)
            values = self.values_of(schema.fields, struct)
            if own is not None:
                values[self._field] = converters(own.schema)(values[self._field])
            return values

        own = schema.field(self._field)

        made = replace(with_fields(basics(schema), fields), optional=schema.optional)
        return replace(made, default=convert(schema.default)), convert

    def _typed(self, schema: Schema) -> Schema:
        return replace(_TARGETS[self._target], optional=schema.optional)

    def _converter(self, schema: Schema) -> Callable[[Any], Any]:
        """Returns what converts values of `schema`. Raises DataError for one that is no moment."""
        read = self._reader(schema)
        return lambda value: None if value is None else self._target_of(read(value), plain=True)

    def _reader(self, schema: Schema) -> Callable[[Any], int]:
        if schema.name == DATE:
            return lambda days: days * DAY_MS
        if schema.name in {TIME, TIMESTAMP}:
            return int
        if schema.type is Type.STRING or schema.type is Type.INT64:
            return self._moment
        raise DataError(f"A {schema.name or schema.type.value} is no moment: text, int64, Date, Time or Timestamp is.")

    def _moment(self, value: Any) -> int:
        """Returns the ms that a text, a date or a Unix time stand for."""
        if isinstance(value, Date):
            return int(value)
        if isinstance(value, str):
            if self._format is None:
                raise DataError(f'"{value:.100}" is a text, and there is no format to read it by.')
            return self._format.parse(value)
        if isinstance(value, int) and not isinstance(value, bool):
            ms = value * 1_000 // self._per_second if value >= 0 else -(-value * 1_000 // self._per_second)
            return max(-_LONG, min(_LONG - 1, ms))  # as TimeUnit does
        raise DataError(f"A {type(value).__name__} is no moment: text, a whole number or a date is.")

    def _target_of(self, ms: int, *, plain: bool) -> Any:
        """Returns a moment in its new form; `plain`: as it is encoded with a schema."""
        if self._target == "string":
            assert self._format is not None
            return self._format.format(ms)
        if self._target == "unix":
            return self._unix(ms)
        if self._target == "Timestamp":
            return ms if plain else Date(ms)
        days, of_day = divmod(ms, DAY_MS)
        if self._target == "Date":
            if plain and not is_int(days):
                raise DataError(f"{ms} ms are further away than the 32 bits of a Date's days are.")
            if days * DAY_MS < -_LONG:
                raise DataError(f"{ms} ms begin a day that is further away than 64 bits of milliseconds are.")
            return days if plain else Date(days * DAY_MS)
        return of_day if plain else Date(of_day)

    def _unix(self, ms: int) -> int:
        if self._per_second < 1_000:
            return ms // 1_000 if ms >= 0 else -(-ms // 1_000)
        units = ms * (self._per_second // 1_000)
        return max(-_LONG, min(_LONG - 1, units))
