"""Finds what a chain's converters and transforms cannot do together, before any record is lost for it. Pure.

`spec.chain_faults` checks what each class takes. The checks here take the worker's converters into account too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Final

from msgspec import Struct

from connectors.chain.spec import (
    KEY_CONVERTER,
    OUTPUT_KEY_CONVERTER,
    OUTPUT_VALUE_CONVERTER,
    VALUE_CONVERTER,
    ChainSpec,
    ClassSpec,
    Fault,
    Resolve,
    StepSpec,
    chain_spec,
    options_of,
)
from connectors.converters.names import BYTES, CONVERTERS
from connectors.placeholders import UNLIMITED, Limits
from connectors.transforms.names import TRANSFORMS
from connectors.transforms.transform import Side

_KEYS: Final = {Side.KEY: KEY_CONVERTER, Side.VALUE: VALUE_CONVERTER}
_READS: Final = {OUTPUT_KEY_CONVERTER: KEY_CONVERTER, OUTPUT_VALUE_CONVERTER: VALUE_CONVERTER}
"""The converters of the output, each with the one that gives it what it writes."""
_JSON: Final = "keyfold.Json"
_PROTOBUF: Final = "keyfold.Protobuf"
_NUMBERS: Final = frozenset(f"keyfold.{name}" for name in ("Boolean", "Short", "Integer", "Long", "Float", "Double"))
_STRING: Final = "keyfold.String"
_NO_FIELDS: Final = _NUMBERS | {BYTES, _STRING}
"""Converters that never give values with fields."""
_OF_ONE_TYPE: Final = _NUMBERS | {BYTES}
"""Converters that write values of the type alone that they read."""
_OF_SCHEMAS: Final = frozenset({"keyfold.Avro", "keyfold.JsonSchema", _PROTOBUF})
"""Converters that write values with a schema alone."""
_NEEDS_FIELDS: Final = frozenset(
    {"ExtractField", "Flatten", "HeaderFrom", "InsertField", "MaskField", "ReplaceField", "SetSchemaMetadata"}
)
_OF_A_FIELD: Final = {"Cast": "spec", "TimestampConverter": "field"}
"""Transforms that take fields or the whole, and the setting that says so."""
_WHOLE: Final = _NO_FIELDS | {_PROTOBUF}
"""Converters of which it is known what they give: one type, or structs."""
_AS_WRITTEN: Final = "Name there the converter that reads what the topic holds."
_NAME_ONE: Final = "keyfold.Json, keyfold.Avro, keyfold.JsonSchema or keyfold.Protobuf"
_WITH_SCHEMA: Final = (
    "as the topic is written: keyfold.Avro, keyfold.JsonSchema, keyfold.Protobuf, or keyfold.Json "
    "with schemas.enable=true (and schema.content, where messages do not have their schema)."
)


_NEEDS_SCHEMAS: Final = {"ExtractNewRecordState": (Side.VALUE,), "ExtractNewDocumentState": (Side.VALUE, Side.KEY)}
"""Transforms that know a change event by its schema, and the sides on which they look for one."""


class _Whole(Enum):
    """What a key or a value is after the steps so far."""

    READ = "what the converter has made of it"
    HOISTED = "that, as the field of a struct"
    MADE = "a struct or a text that a step has made"
    TAKEN = "a field of such a struct: it may be bytes"


class _Part(Struct):
    """A key or a value on its way. `named`: a file names its converter. `by`: the step that made it what it is.

    `output`: the converter that writes it, if a file names one. `has_schema`: it may have one. `is_struct`: it is one,
    whatever a record holds.
    """

    key: str
    converter: ClassSpec
    output: ClassSpec | None
    named: bool
    has_fields: bool
    has_schema: bool
    is_struct: bool
    whole: _Whole = _Whole.READ
    by: str = ""

    @property
    def java(self) -> str:
        """Our name of the converter."""
        return CONVERTERS.find(self.converter.name).of.java

    @property
    def writer(self) -> str:
        """Our name of the converter that writes it."""
        return CONVERTERS.find((self.output or self.converter).name).of.java

    @property
    def kind(self) -> str:
        """What it is, as a sentence says it."""
        return "key" if self.key == KEY_CONVERTER else "value"


def fit_faults(
    settings: Mapping[str, str], worker: Mapping[str, str] | None, resolve: Resolve, limits: Limits = UNLIMITED
) -> tuple[Fault, ...]:
    """Returns what cannot work of a chain in which each class by itself is right.

    `worker` has the worker's converters. If it is None they are not known, and a key or value gets no fault if the
    connector does not name its converter. `limits` are those of the connector's placeholders.
    """
    given = {**settings} if worker is None else {**worker, **settings}
    spec = chain_spec(settings, worker, limits)
    parts = {side: _part(spec, side, given, resolve) for side in Side}
    known = {key for key in _KEYS.values() if worker is not None or key in settings}
    faults: dict[str, str] = {}
    for step in spec.steps:
        for key, text in _step_faults(step, parts):
            faults.setdefault(key, text)
    for part in parts.values():
        for key, text in (*_written_faults(part), *_output_faults(part), *_text_faults(part)):
            faults.setdefault(key, text)
    return tuple((key, text) for key, text in faults.items() if _converter_of(key) in known)


def _converter_of(key: str) -> str:
    """Returns the converter that a fault on `key` comes of: a step's is that of values."""
    return _READS.get(key, key if key in _KEYS.values() else VALUE_CONVERTER)


def _part(spec: ChainSpec, side: Side, given: Mapping[str, str], resolve: Resolve) -> _Part:
    key = _KEYS[side]
    own, output = (spec.key, spec.output_key) if side is Side.KEY else (spec.value, spec.output_value)
    part = _Part(key, own, output, key in given, has_fields=True, has_schema=True, is_struct=False)
    part.has_fields = part.java not in _NO_FIELDS
    part.is_struct = part.java == _PROTOBUF
    part.has_schema = part.java != _JSON or options_of(own, CONVERTERS, resolve)["schemas.enable"]
    return part


def _step_faults(step: StepSpec, parts: Mapping[Side, _Part]) -> Iterator[Fault]:
    """Yields what a step lacks, and says what it makes of keys and values."""
    named = TRANSFORMS.find(step.of.name)
    name = named.of.simple
    for side in _NEEDS_SCHEMAS.get(name, ()):
        yield from _schema_faults(step, parts[side])
    if name == "ExtractNewDocumentState":
        parts[Side.KEY].is_struct, parts[Side.KEY].by = True, step.alias
    side = Side(named.side) if named.side is not None else Side.VALUE
    part = parts[side]
    if _needs_fields(name, step) and not part.has_fields:
        yield part.key, _no_fields(part, step)
    if name == "ValueToKey":
        key = parts[Side.KEY]
        key.whole, key.by, key.has_fields, key.is_struct = _Whole.MADE, step.alias, True, True
        key.has_schema = parts[Side.VALUE].has_schema
    elif name == "HoistField":
        part.whole = _Whole.HOISTED if part.whole is _Whole.READ else part.whole
        part.by, part.has_fields, part.is_struct = step.alias, True, True
    elif name == "ExtractField":
        part.whole = _Whole.READ if part.whole in {_Whole.READ, _Whole.HOISTED} else _Whole.TAKEN
        part.is_struct = False
    elif name == "Cast" and not _needs_fields(name, step):
        part.whole, part.by, part.is_struct = _Whole.MADE, step.alias, False


def _needs_fields(name: str, step: StepSpec) -> bool:
    if name in _OF_A_FIELD:
        text = step.of.texts.get(_OF_A_FIELD[name], "").strip()
        return ":" in text if name == "Cast" else bool(text)
    return name in _NEEDS_FIELDS or name == "ValueToKey"


def _no_fields(part: _Part, step: StepSpec) -> str:
    what = (
        f'"{part.converter.name}" gives values without fields'
        if part.named
        else "missing; without it there is no field"
    )
    return f"{what}, and {step.of.name} (transforms.{step.alias}) needs them. Name one that reads them: {_NAME_ONE}."


def _schema_faults(step: StepSpec, part: _Part) -> Iterator[Fault]:
    if not part.has_schema:
        gives = f"{part.key}.schemas.enable is false"
    elif part.java in _NO_FIELDS:
        gives = f'{part.key} is "{part.converter.name}"' if part.named else f"{part.key} is not set"
    else:
        return
    what = "records" if part.key == VALUE_CONVERTER else "keys"
    text = f"{step.of.name} needs {what} with a schema, and {gives}: change events would pass as they are, and "
    yield f"transforms.{step.alias}.type", f"{text}deleted rows stay. Set {part.key} {_WITH_SCHEMA}"


def _written_faults(part: _Part) -> Iterator[Fault]:
    """Yields what the default converter cannot write. If a file names it, a field may be bytes, which it writes."""
    named = part.named or part.output is not None
    made = part.whole in {_Whole.HOISTED, _Whole.MADE} or (part.whole is _Whole.TAKEN and not named)
    if part.writer == BYTES and made:
        key, name = (part.key, part.converter.name) if part.output is None else (f"output.{part.key}", part.output.name)
        what = f'"{name}" writes bytes alone' if named else "missing"
        text = f"{what}; transforms.{part.by} makes a {part.kind} that has to be written. Name one that writes it, "
        some = "keyfold.Json" if part.is_struct and part.key == KEY_CONVERTER else "keyfold.String or keyfold.Json"
        yield key, f"{text}as its readers expect it: for example {some}."


def _text_faults(part: _Part) -> Iterator[Fault]:
    """Yields that keys which are always structs would be written as texts, which do not tell all of them apart."""
    if part.key == KEY_CONVERTER and part.is_struct and part.writer == _STRING:
        key, name = (part.key, part.converter.name) if part.output is None else (f"output.{part.key}", part.output.name)
        made = f"transforms.{part.by}" if part.by else f'{part.key} "{part.converter.name}"'
        text = f'"{name}" writes {{a:"1,b=2"}} and {{a:"1",b:"2"}} as one key, and {made} makes keys of fields. '
        yield key, f"{text}Name keyfold.Json, or take one field for the key with a later ExtractField$Key."


def _output_faults(part: _Part) -> Iterator[Fault]:
    """Yields what the output's converter can make nothing of, whatever a record holds."""
    if part.output is None:
        return
    key, name, is_read = f"output.{part.key}", part.output.name, part.whole is _Whole.READ
    reads = f'{part.key} "{part.converter.name}"'
    if is_read and part.java == BYTES and not part.named and part.writer != BYTES:
        yield key, f'"{name}" would write a {part.kind} as bytes in its form: {part.key} is missing. {_AS_WRITTEN}'
    elif not part.has_schema and part.writer in _OF_SCHEMAS:
        text = f"schemas.enable is false. Say it in {part.key}.schema.content, or name keyfold.Json here."
        yield key, f'"{name}" writes a {part.kind} by its schema, and there is none: {part.key}.{text}'
    elif is_read and part.writer in _OF_ONE_TYPE and part.java != part.writer and part.java in _WHOLE:
        yield key, f'"{name}" writes values of one type alone, and {reads} gives another. Name keyfold.Json or another.'
    elif is_read and part.writer == _PROTOBUF and part.java in _NO_FIELDS:
        yield key, f'"{name}" writes structs alone, and {reads} gives none. Name keyfold.Avro or another.'
