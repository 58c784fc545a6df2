from __future__ import annotations

import json

import pyarrow as pa
import pytest

from compactor.model.record import SOURCE
from connectors.chain import quoted_settings
from connectors.chain.chain import Chain
from connectors.chain.spec import chain_spec
from connectors.placeholders import resolve
from connectors.transforms.transform import Side

SECRET = "${env:SECRET}"
PLAIN = {"value.converter": "keyfold.Json", "value.converter.schemas.enable": "false"}
INSERT = {
    "transforms.i.type": "InsertField$Value",
    "transforms.i.static.field": "z",
    "transforms.i.static.value": SECRET,
}
CAST = {"transforms.c.type": "Cast$Value", "transforms.c.spec": "z:int32"}


def rejected(settings: dict[str, str], value: bytes = b'{"z": "text"}') -> str:
    """Returns why a record is rejected."""
    row = {"topic": "t", "partition": 0, "offset": 1, "timestamp": 7, "timestamp_type": 0, "key": b"k", "headers": []}
    made = Chain(chain_spec({**PLAIN, **settings}), resolve)
    (why,) = made.apply(pa.RecordBatch.from_pylist([{**row, "value": value}], schema=SOURCE))["rejected"].to_pylist()
    return str(why)


@pytest.fixture(autouse=True)
def _secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "geheim-4711")


@pytest.mark.parametrize(
    ("transforms", "shown"),
    [("c", True), ("c,i", True), ("i,c", False)],
    ids=["without a placeholder", "before it", "after it"],
)
def test_from_a_placeholder_on_no_error_is_shown(transforms: str, shown: bool) -> None:
    """A transform may put the value into the record, which each later error may quote."""
    own = {**CAST, **(INSERT if "i" in transforms else {})}
    text = rejected({**own, "transforms": transforms})
    assert text.startswith("TRANSFORMATION Cast$Value DataError: ")
    assert ('"text"' in text or "'text'" in text) is shown
    assert ("Placeholders are in transforms.i.static.value." in text) is not shown
    assert "geheim" not in text


def test_what_a_reader_says_is_shown_whatever_follows() -> None:
    """No transform has seen the record by then."""
    assert "This is no JSON" in rejected({**INSERT, "transforms": "i"}, b"{")


def test_the_settings_of_a_predicate_count() -> None:
    """Its pattern may be quoted, and its step's errors may tell whether it matches."""
    of_predicate = {"predicates": "p", "predicates.p.type": "HasHeaderKey", "predicates.p.name": SECRET}
    negated = {"transforms.c.predicate": "p", "transforms.c.negate": "true"}
    text = rejected({**CAST, **of_predicate, **negated, "transforms": "c"})
    assert "Placeholders are in predicates.p.name." in text


def names(settings: dict[str, str]) -> tuple[str, ...]:
    """Returns the settings for which no error of the writing converter is shown."""
    return quoted_settings.of_writing(chain_spec({**PLAIN, **settings}), Side.VALUE)


@pytest.mark.parametrize(
    ("name", "counts"),
    [
        ("schema.registry.url", False),
        ("basic.auth.user.info", False),
        ("schema.registry.ssl.truststore.location", False),
        ("proxy.host", False),
        ("auto.register.schemas", False),
        ("value.subject.name.strategy", True),
        ("unknown.to.the.class", False),
    ],
)
def test_settings_that_no_error_of_a_record_quotes_hide_none(name: str, counts: bool) -> None:
    """Passwords, and what says how a registry is asked; an address is often a placeholder."""
    at = f"output.value.converter.{name}"
    made = names({"output.value.converter": "keyfold.Avro", at: SECRET})
    assert made == ((at,) if counts else ())


def test_a_second_name_of_a_setting_is_that_setting() -> None:
    """Apicurio's name of the address hides nothing either."""
    own = {"output.value.converter": "keyfold.Avro", "output.value.converter.apicurio.registry.url": SECRET}
    assert names(own) == ()


def test_the_converter_of_headers_and_those_that_read_count() -> None:
    """What a schema in a setting names may stand in each later error."""
    schema = {"value.converter": "keyfold.Json", "value.converter.schema.content": SECRET}
    spec = chain_spec({**schema, "header.converter": "keyfold.Json", "header.converter.schema.content": SECRET})
    assert quoted_settings.of_reading(spec, Side.VALUE) == ("value.converter.schema.content",)
    assert quoted_settings.of_headers(spec) == ("value.converter.schema.content", "header.converter.schema.content")
    assert json.dumps(quoted_settings.of_reading(spec, Side.KEY)) == "[]"
