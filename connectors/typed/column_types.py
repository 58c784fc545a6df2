"""Knows what the keys or values of a connector hold, by its converter (`compactor.ports.ColumnTypes`).

A record is read as it is kept: in the output's form. What cannot be read, or fits no column, is told with the reason,
and makes no snapshot fail. A registry that does not answer says nothing of a record: no snapshot is taken then.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Mapping
from typing import Final

import msgspec
import pyarrow as pa
import structlog
from msgspec import Struct

from compactor.json_types import decoded_as
from compactor.ports import ColumnLayout
from connectors.chain.quoted_settings import of_reading, of_writing
from connectors.chain.spec import ChainSpec, ClassSpec, Resolve, made_converter
from connectors.converters.names import CONVERTERS
from connectors.machine_errors import refuse_machine
from connectors.registry.patience import Patience
from connectors.rejection import reason_of
from connectors.transforms.transform import Side
from connectors.typed import kept_schemas
from connectors.typed.arrow_types import check_size
from connectors.typed.converter_settings import CLASS, shown_settings
from connectors.typed.decoder import MOST_BYTES, TypeDecoder
from connectors.typed.kinds import SurveyedType, text_of, type_from
from connectors.typed.record_reader import WAIT_S, RecordReader
from connectors.typed.shape import Shapes, columns_of
from connectors.typed.survey import TypeSurvey
from connectors.typed.unite import as_columns, layout_of, named, renamed

_SIDES: Final = {"key": Side.KEY, "value": Side.VALUE}

_log = structlog.get_logger()


class ValueTypes(Struct, frozen=True, kw_only=True):
    """The types of the keys, or the values (`side`), of a connector with `chain`.

    `most_bytes`: bytes that the columns of records which are decoded together may have.
    `wait_s`: for how many seconds each survey, and each decoder, waits for registries in all. `given`: the columns that
    a file gives to values without a schema (`given_columns`); None: they are inferred.
    """

    side: str
    chain: ChainSpec
    resolve: Resolve
    most_bytes: int = MOST_BYTES
    wait_s: float = WAIT_S
    given: str | None = None

    @property
    def needs_survey(self) -> bool:
        """See `ColumnTypes`."""
        return self.given is None

    @property
    def settings(self) -> str:
        """See `ColumnTypes`: a digest of the converter's class, and of its settings that no server is asked by."""
        kind = CONVERTERS.find(self._class.name).of.load()
        deciding = {option.name for option in kind.OPTIONS if not option.of_server and option.kind != "PASSWORD"}
        texts = sorted((name, text) for name, text in self._class.texts.items() if name in deciding)
        told = msgspec.json.encode([kind.__name__, texts, *([] if self.given is None else [self.given])])
        return hashlib.sha256(told).hexdigest()[:16]

    @property
    def converter(self) -> dict[str, str]:
        """See `ColumnTypes`: no password, no file, no placeholder, and no address with a login or a query."""
        return {CLASS: self._class.name, **shown_settings(self._class)}

    def survey(self) -> TypeSurvey:
        """See `ColumnTypes`."""
        return TypeSurvey(self.reader())

    def layout(self, kinds: Mapping[bytes, int], kept: str | None, taken: Collection[str]) -> ColumnLayout:
        """See `ColumnTypes`: what is kept are the columns of values without a schema."""
        if self.given is not None:
            given = named(as_columns(type_from(self.given)), taken)
            return ColumnLayout(given, renamed(given), text_of(given))
        types, shapes, count = Counter[pa.DataType](), Shapes(), 0
        schemas, more = Counter[str](), False
        for data, records in kinds.items():
            kind = decoded_as(data, SurveyedType)
            if kind.type is not None:
                types[type_from(kind.type)] += records
                schemas.update(dict.fromkeys(kind.schemas, records))
                more = more or kind.more
            if kind.shape is not None:
                shapes.merge(kind.shape)
                count += records
        plain, before = None, None if kept is None else _kept_from(kept)
        if count or before is not None:
            plain = columns_of(shapes.whole, before)
            types[plain] += count
        columns = layout_of(types)
        unique = named(columns, taken)
        texts = kept_schemas.chosen(schemas, more=more)
        return ColumnLayout(unique, renamed(unique), None if plain is None else text_of(plain), texts)

    def decoder(self, layout: ColumnLayout) -> TypeDecoder:
        """See `ColumnTypes`."""
        return TypeDecoder(self.reader(), layout.type, self.most_bytes)

    def reader(self) -> RecordReader:
        """Returns what reads records, with a converter of its own."""
        side = _SIDES[self.side]
        converter = made_converter(self._class, self.resolve, is_key=side is Side.KEY)
        converter.name_logical_types()
        converter.wait_with(Patience(wait_s=self.wait_s))
        unseen = tuple(dict.fromkeys([*of_reading(self.chain, side), *of_writing(self.chain, side)]))
        return RecordReader(self.side, self._class.name, converter, self.chain.most_read, unseen)

    @property
    def _class(self) -> ClassSpec:
        return self.chain.written_key if self.side == "key" else self.chain.written_value


def _kept_from(text: str) -> pa.StructType | None:
    """Returns the columns that a snapshot hands on; None for what `text_of` has not written: the file was damaged."""
    try:
        kept = type_from(text)
        check_size(kept)
        return kept if pa.types.is_struct(kept) else None
    except Exception as error:  # noqa: BLE001  # Arrow raises what it stumbles over
        refuse_machine(error)
        _log.warning("the columns of the newest snapshot cannot be read, others are made", error=reason_of(error))
        return None
