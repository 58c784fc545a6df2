"""A key that is written as another one would be is an error of its record: no row is lost to another's."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest

from connectors.chain.chain import Chain
from connectors.chain.fit import fit_faults
from connectors.chain.spec import chain_spec
from connectors.converters.distinct_keys import check_nulls_of_key
from connectors.converters.primitive_converters import DoubleConverter, FloatConverter, StringConverter
from connectors.data.schema import INT32, STRING, TIMESTAMP, Field, Schema, Type
from connectors.errors import DataError
from connectors.rejection import Stage, rejection_of
from tests.unit.connectors.chain.test_chain import BY_ID, batch

PLAIN: Final = {
    "key.converter": "keyfold.Json",
    "key.converter.schemas.enable": "false",
    "output.key.converter": "keyfold.String",
}
WITH_SCHEMAS: Final = {"key.converter": "keyfold.Json", "output.key.converter": "keyfold.String"}
EXTRACT: Final = {"transforms": "x", "transforms.x.type": "ExtractField$Key", "transforms.x.field": "id"}
HOIST: Final = {"transforms": "x", "transforms.x.type": "HoistField$Key", "transforms.x.field": "id"}
PROTOBUF: Final = {"key.converter": "keyfold.Protobuf", "key.converter.schema.registry.url": "http://a:1"}
TEXTS: Final = [{"field": name, "type": "string", "optional": True} for name in "ab"]


def written(settings: dict[str, str], *keys: Any) -> tuple[list[bytes], list[str | None]]:
    """Returns the keys of records with these keys in JSON, and why each is rejected."""
    result = Chain(chain_spec(settings), str).apply(batch(*((json.dumps(key).encode(), b"v") for key in keys)))
    return result["key"].to_pylist(), result["rejected"].to_pylist()


def of_schema(payload: Any, **schema: Any) -> Any:
    """Returns a message of JSON with its schema."""
    return {"schema": schema, "payload": payload}


@pytest.mark.parametrize(
    ("settings", "keys"),
    [
        (WITH_SCHEMAS, [of_schema(key, type="struct", fields=TEXTS) for key in ({"a": "1,b=2"}, {"a": "1", "b": "2"})]),
        (WITH_SCHEMAS, [of_schema(key, type="array", items={"type": "string"}) for key in (["1, 2"], ["1", "2"])]),
        (WITH_SCHEMAS, [of_schema(at, type="int64", name=TIMESTAMP) for at in (1_000, 1_001)]),
        (PLAIN, [[1, "2"], ["1", "2"], {"a": "1, b=2"}, {"a": "1", "b": "2"}]),
        (PLAIN, [1, 1.5, True]),
    ],
)
def test_a_key_whose_text_may_be_another_key_s_is_an_error_of_its_record(
    settings: dict[str, str], keys: list[Any]
) -> None:
    """It keeps its bytes, and the error says what to do."""
    kept, rejected = written(settings, *keys)
    assert kept == [json.dumps(key).encode() for key in keys]
    for text in rejected:
        assert text is not None
        rejection = rejection_of(text)
        assert (rejection.stage, rejection.exception) == (Stage.KEY_CONVERTER, "DataError")
        assert "could be another key's" in rejection.message
        assert "keyfold.Json" in rejection.message


def test_a_text_and_a_key_of_one_type_are_written() -> None:
    """A schema says that all keys are numbers; without one, a text alone is what it was."""
    numbers = [of_schema(number, type="int64") for number in (1, 2)]
    assert written(WITH_SCHEMAS, of_schema("1", type="string"), *numbers)[0] == [b"1", b"1", b"2"]
    assert written(PLAIN, "1", "a") == ([b"1", b"a"], [None, None])
    assert written({**PLAIN, **EXTRACT}, {"id": "1"}, {"id": 1})[0] == [b"1", b'{"id": 1}']
    cast = {**PLAIN, "transforms": "x", "transforms.x.type": "Cast$Key", "transforms.x.spec": "string"}
    assert written(cast, 1, "a")[0] == [b"1", b"a"]


def test_a_value_may_lose_its_parts() -> None:
    """Values are told apart by their keys."""
    struct = Schema(type=Type.STRUCT, fields=(Field("id", STRING),))
    converter = StringConverter({"encoding": "UTF-8"}, is_key=False)
    assert converter.from_connect_data("t", [], struct, {"id": "a"}) == b"Struct{id=a}"
    assert converter.from_connect_data("t", [], None, [1]) == b"[1]"


@pytest.mark.parametrize("encoding", ["shift_jis", "euc_jp"])
def test_a_character_that_an_encoding_writes_as_another_makes_no_key(encoding: str) -> None:
    """The yen sign would be a backslash."""
    converter = StringConverter({"encoding": encoding}, is_key=True)
    assert converter.from_connect_data("t", [], None, "a") == b"a"
    with pytest.raises(DataError, match="writes as others"):
        converter.from_connect_data("t", [], None, "a\u00a5")


def test_a_number_that_would_be_rounded_makes_no_key() -> None:
    """Without a schema: a float has 32 bits, a double keeps whole numbers up to 2**53."""
    single, double = FloatConverter({}, is_key=True), DoubleConverter({}, is_key=True)
    for converter, number in ((single, 0.1), (double, 2**53 + 1)):
        with pytest.raises(DataError, match="which is another key"):
            converter.from_connect_data("t", [], None, number)
    assert double.from_connect_data("t", [], None, float("nan")) is not None
    assert single.from_connect_data("t", [], None, 1.5) == b"\x3f\xc0\x00\x00"
    assert FloatConverter({}, is_key=False).from_connect_data("t", [], None, 0.1) is not None


def test_a_null_that_protobuf_writes_as_an_empty_value_makes_no_key() -> None:
    """It says with optional.for.nullables whether a number or a text is there, and never of lists."""
    inner = Schema(type=Type.STRUCT, optional=True, fields=(Field("n", INT32.as_optional()),))
    texts = Schema(type=Type.ARRAY, value_schema=STRING, optional=True)
    outer = Schema(type=Type.STRUCT, fields=(Field("in", inner), Field("texts", texts)))
    check_nulls_of_key(outer, {"in": None, "texts": []}, has_nullables=False)
    check_nulls_of_key(outer, {"in": {"n": None}, "texts": []}, has_nullables=True)
    for key, has_nullables in (({"in": {"n": None}, "texts": []}, False), ({"in": None, "texts": None}, True)):
        with pytest.raises(DataError, match="as an empty value is"):
            check_nulls_of_key(outer, key, has_nullables=has_nullables)


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({**PROTOBUF, "output.key.converter": "keyfold.String"}, "output.key.converter"),
        ({**WITH_SCHEMAS, **HOIST}, "output.key.converter"),
        ({**HOIST, "key.converter": "keyfold.String"}, "key.converter"),
        ({**BY_ID, "transforms": "key"}, "key.converter"),
    ],
)
def test_keys_that_are_always_structs_are_not_written_as_texts(settings: dict[str, str], key: str) -> None:
    """The settings tell it before any record is lost."""
    used = {name: text for name, text in settings.items() if not name.startswith("transforms.id.")}
    ((at, text),) = fit_faults(used, {}, str)
    assert at == key
    assert "ExtractField$Key" in text


@pytest.mark.parametrize(
    "settings",
    [
        BY_ID,
        WITH_SCHEMAS,
        {**PROTOBUF, **EXTRACT, "output.key.converter": "keyfold.String"},
        {**PROTOBUF, "output.key.converter": "keyfold.Json"},
    ],
)
def test_keys_that_may_be_texts_are_taken_by_the_settings(settings: dict[str, str]) -> None:
    """Each record tells then."""
    assert fit_faults(settings, {}, str) == ()
