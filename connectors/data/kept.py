"""Keeps what was made of schemas, so that it is made once, within a bound for all of it together.

A count alone is no bound: a thousand schemas of a megabyte each, one in every record, would be tens of gigabytes once
they are parsed.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from sys import getsizeof
from typing import Any, Final, TypeVar

from msgspec import Struct

from connectors.clock import SYSTEM_CLOCK, Clock
from connectors.data.schema import Schema
from connectors.errors import DataError
from connectors.kept_values import HEAVIEST, Kept

_TYPE: Final = 320
"""About how many bytes a type of a schema takes, with its field and what is made of it."""
_PLAIN: Final = 32
"""About how many bytes a number takes."""


def weight_of(*values: Any, most: int = 2 * HEAVIEST) -> int:
    """Returns about how many bytes `values` take, which are schemas, texts, and lists and dicts of them.

    What is there twice counts twice, as it does once it is written. It stops counting beyond `most` bytes.
    """
    weight, left = 0, list(values)
    while left and weight <= most:
        value = left.pop()
        if isinstance(value, Schema):
            weight += _TYPE
            left += [field.schema for field in value.fields]
            weight += sum([getsizeof(field.name) for field in value.fields])
            left += [part for part in (value.key_schema, value.value_schema, value.default) if part is not None]
            left += [part for part in (value.name, value.doc, value.parameters) if part]
        elif isinstance(value, str | bytes):
            weight += getsizeof(value)
        elif isinstance(value, Struct):
            left += [getattr(value, name) for name in value.__struct_fields__]
        elif isinstance(value, Mapping):
            weight += getsizeof(value)
            left += [*value, *value.values()]
        elif isinstance(value, list | tuple):
            weight += getsizeof(value)
            left += value
        else:
            weight += _PLAIN
    return weight


_MOST_SCHEMAS: Final = 1_000
"""Schemas of which something is kept: more than a source has at a time."""


class OfSchema:
    """Keeps what `derive` makes of each schema, by the schema's identity: schemas are few, and made once.

    The oldest are let go, so that a source that makes a new schema for each record costs time and no memory. A schema
    of more than HEAVIEST bytes is refused with a DataError before anything is made of it: its names and defaults, each
    of which may be used many times, would be written that often. `own`: about how many bytes of what is made come from
    settings, whatever the schema is.
    """

    def __init__(self, derive: Callable[[Schema], Any], own: int = 0) -> None:
        self._derive = derive
        self._own = own
        # The schema is kept with what was made of it: its id would else be another one's once it is gone.
        self._kept: Kept[int, tuple[Schema, Any]] = Kept(_MOST_SCHEMAS)

    def __call__(self, schema: Schema) -> Any:
        """Returns what `derive` made of `schema`."""
        kept = self._kept.get(id(schema))
        if kept is None:
            weight = weight_of(schema, most=HEAVIEST)
            if weight > HEAVIEST:
                raise DataError(
                    f"The schema takes more than {HEAVIEST >> 20} MiB, with its names, texts and defaults at each use.",
                    "Shorten them, or split the schema.",
                )
            kept = self._kept.put(id(schema), (schema, self._derive(schema)), 2 * weight + self._own)
        return kept[1]


Result = TypeVar("Result")

KEPT_MS: Final = 30_000
"""For how long an error is kept at least: what is missing may be there later."""
_SHARE: Final = 10
"""How many times as long an error is kept as it took to be found: what is refused again and again, such as a schema
that takes protoc its 20 s, takes a tenth of the time at most."""
_MOST: Final = 1_000
_HEAVIEST: Final = 4 << 20
"""How many are kept, and how many bytes of them: the ids of malformed records may be any, and what is asked a text."""


class Refusals:
    """The errors of the last moments, by what was asked, for at least KEPT_MS each. Used by one thread."""

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        # Each error with the time (monotonic ms) up to which it counts.
        self._kept: Kept[Hashable, tuple[int, DataError]] = Kept(_MOST, _HEAVIEST)

    def __len__(self) -> int:
        return len(self._kept)

    def of(self, asked: Hashable, make: Callable[[], Result]) -> Result:
        """Returns what `make` does. Raises the DataError that it has raised and that is still kept, or a new one."""
        kept = self._kept.get(asked)
        if kept is not None and self._clock.monotonic_ms() < kept[0]:
            raise DataError(kept[1].message, kept[1].action)
        began_ms = self._clock.monotonic_ms()
        try:
            return make()
        except DataError as error:
            now_ms = self._clock.monotonic_ms()
            until_ms = now_ms + max(KEPT_MS, _SHARE * (now_ms - began_ms))
            held = until_ms, DataError(error.message, error.action)
            self._kept.put(asked, held, weight_of(asked, error.message, error.action))
            raise
