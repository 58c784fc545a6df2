"""What a transform and a predicate are (`org.apache.kafka.connect.transforms`, KIP-66 and KIP-585)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any, ClassVar, Final

from msgspec.structs import replace

from connectors.data.record import ConnectRecord
from connectors.data.schema import Field, Schema
from connectors.data.unwrapping import Unwrapping
from connectors.options import Option
from connectors.transforms.values import REPLACE_NULL, field_value


class Side(Enum):
    """Which part of a record a step looks at or changes."""

    KEY = "Key"
    VALUE = "Value"


class Step(ABC):  # noqa: B024  # transforms and predicates have different ones
    """Something of a chain: it is made from its settings, which it checks, and says what it looks at.

    `options` are the values of OPTIONS (`options.read`). What is wrong with them together raises OptionsError.
    """

    OPTIONS: ClassVar[tuple[Option, ...]] = ()
    READS: ClassVar[frozenset[Side]] = frozenset()
    """What of a record it looks at; a transform with Key and Value variants looks at its own side as well."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self.options = options

    @property
    def reads(self) -> frozenset[Side]:
        """What of a record this one looks at: only that has been converted when it is called."""
        return self.READS


SWEEP: Final = (
    "Sweep the rows that it has left with keyfold resync CONNECTOR.json --topic TOPIC --since TIME, the time of the "
    "truncate, or better its offset (docs/cdc.md, TRUNCATE); empty tables by DELETE."
)
"""What helps after a truncate: keys without a record since then get a tombstone."""


class TruncateError(Exception):
    """Says that a record empties a table: it has no key, and nothing can be made of it.

    `step` is the transform that has found it, as the file names it; set by the chain.
    """

    step: str = ""


class Transform(Step):
    """Changes records one by one. One is made per reading task and used by one thread; it keeps no state of records."""

    def fields_of(self, schema: Schema) -> frozenset[str] | None:  # noqa: ARG002  # most look at all
        """Returns which fields of a value of `schema` it looks at if nothing else of that value is left after it.

        None stands for all, and for a value of which anything else is left.
        """
        return None

    @property
    def unwrapping(self) -> Unwrapping | None:
        """What this one does, if that is all that it does with any record."""
        return None

    @property
    def added(self) -> int:
        """How many characters it may add to a key or value, or to a header: the texts of its settings, once each."""
        texts = (text for value in self.options.values() for text in (value if isinstance(value, list) else [value]))
        return sum(len(text) for text in texts if isinstance(text, str))

    @property
    def copies(self) -> int:
        """How many times a text of a record may stand in one key or value that it makes."""
        return 1

    @abstractmethod
    def apply(self, record: ConnectRecord) -> ConnectRecord | None:
        """Returns what becomes of `record`; None drops it.

        Raises DataError if it cannot be transformed, TruncateError if it empties a table.
        """


class SidedTransform(Transform):
    """A transform with the variants `…$Key` and `…$Value`."""

    def __init__(self, options: Mapping[str, Any], side: Side) -> None:
        super().__init__(options)
        self.side = side
        self._defaults: Final[bool] = options.get(REPLACE_NULL.name, True)

    @property
    def reads(self) -> frozenset[Side]:
        """What it looks at: its own side, and READS."""
        return self.READS | {self.side}

    def operating(self, record: ConnectRecord) -> tuple[Schema | None, Any]:
        """Returns its side of `record`: schema and value."""
        if self.side is Side.KEY:
            return record.key_schema, record.key
        return record.value_schema, record.value

    def values_of(self, fields: Iterable[Field], struct: dict[str, Any]) -> dict[str, Any]:
        """Returns the values of `fields` in a struct; for null the default, unless the setting says otherwise."""
        return {field.name: field_value(field, struct, defaults=self._defaults) for field in fields}

    def new_record(self, record: ConnectRecord, schema: Schema | None, value: Any) -> ConnectRecord:
        """Returns `record` with another schema and value on its side."""
        if self.side is Side.KEY:
            return replace(record, key_schema=schema, key=value)
        return replace(record, value_schema=schema, value=value)


class Predicate(Step):
    """A condition that a record must meet for a transform to be applied to it."""

    @abstractmethod
    def test(self, record: ConnectRecord) -> bool:
        """Returns whether `record` meets the condition."""
