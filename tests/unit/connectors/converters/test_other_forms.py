"""A value that was read in one form and written in another is read from that as the same value."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pytest

from connectors.converters.converter import Converter
from connectors.converters.names import CONVERTERS
from connectors.data.schema import Schema, Type
from connectors.errors import DataError
from connectors.options import read
from tests.support.connect_classes.generated import Generator
from tests.support.memory.schema_registry import MemoryRegistry, served

FORMS: Final[dict[str, dict[str, str]]] = {
    "keyfold.Json": {"decimal.format": "NUMERIC", "replace.null.with.default": "false"},
    "keyfold.Avro": {},
    "keyfold.JsonSchema": {},
    "keyfold.Protobuf": {"optional.for.nullables": "true"},
}
VALUES: Final = 60
REFUSED: Final = (
    *("does not take", "does not write", "maps have texts", "that differ have the name", "lists or maps in"),
    *("no Protobuf", "is too large", "between the years", "does not fit"),
)
"""What a form cannot hold: names, types, maps. The record is refused, and nothing of it is written otherwise."""


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with served(MemoryRegistry()) as address:
        yield address


def converter(name: str, url: str) -> Converter:
    """Makes a converter of values, with the settings of its form."""
    kind = CONVERTERS.find(name).of.load()
    texts = FORMS[name] | ({"schema.registry.url": url} if hasattr(kind, "KIND") else {})
    made: Converter = kind(read(kind.OPTIONS, texts), is_key=False)
    return made


def expected(output: str, schema: Schema | None, value: Any) -> Any:
    """Returns what a form makes of the nulls in `value`, which is otherwise the same.

    Protobuf does not tell an empty list from none. JsonSchema writes the default of a field for its null, as
    Confluent's class does.
    """
    if schema is None:
        return value
    if value is None:
        empty: Any = {Type.ARRAY: [], Type.MAP: {}}.get(schema.type)
        return empty if output == "keyfold.Protobuf" else schema.default if output == "keyfold.JsonSchema" else None
    if schema.type is Type.STRUCT:
        return {field.name: expected(output, field.schema, value[field.name]) for field in schema.fields}
    if schema.type is Type.ARRAY:
        return [expected(output, schema.value_schema, item) for item in value]
    if schema.type is Type.MAP:
        return {name: expected(output, schema.value_schema, item) for name, item in value.items()}
    return value


@pytest.mark.parametrize("source", ["keyfold.Json", "keyfold.Avro"])
@pytest.mark.parametrize("output", FORMS)
def test_a_value_is_the_same_in_another_form(source: str, output: str, url: str) -> None:
    """Structs of all types with defaults, names and logical types; what a form cannot hold is refused as that."""
    reader, writer, again = (converter(name, url) for name in (source, output, output))
    compared, refusals = 0, list[str]()
    for number in range(VALUES):
        generator = Generator(number, plain_numbers=True)
        schema = generator.struct(2)
        value: Any = generator.value(schema)
        try:
            data = reader.from_connect_data("t", [], schema, value)
            read_schema, read_value = reader.to_connect_data("t", [], data)
            if read_value is None:
                continue
            written = writer.from_connect_data("t.out", [], read_schema, read_value)
        except DataError as error:
            refusals.append(error.message)
            continue
        assert again.to_connect_data("t.out", [], written)[1] == expected(output, read_schema, read_value), number
        compared += 1
    assert compared > VALUES / 5
    assert [said for said in refusals if not any(part in said for part in REFUSED)] == []
    for each in (reader, writer, again):
        each.close()
