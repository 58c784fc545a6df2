"""A chain whose converters and transforms cannot work together is refused, on the setting that is to be changed."""

from __future__ import annotations

from typing import Any

import pytest
from structlog.testing import capture_logs

from connectors.chain.chain import Chain
from connectors.chain.fit import fit_faults
from connectors.chain.spec import chain_faults, chain_spec
from tests.unit.connectors.chain.test_chain import BY_ID, batch

PLAIN = {"value.converter": "keyfold.Json", "value.converter.schemas.enable": "false"}
WITH_SCHEMA = {"value.converter": "keyfold.Json"}
AVRO = {"value.converter": "keyfold.Avro", "value.converter.schema.registry.url": "http://registry"}
ENVELOPE = {"transforms": "e", "transforms.e.type": "io.debezium.transforms.ExtractNewRecordState"}
DOCUMENT = {
    "transforms": "e",
    "transforms.e.type": "io.debezium.connector.mongodb.transforms.ExtractNewDocumentState",
}
KEY = {"transforms": "k", "transforms.k.type": "ValueToKey", "transforms.k.fields": "id"}
ID = {
    **KEY,
    "transforms": "k,i",
    "transforms.i.type": "ExtractField$Key",
    "transforms.i.field": "id",
}


def step(name: str, **texts: str) -> dict[str, str]:
    """Returns the settings of one transform."""
    own = {f"transforms.t.{key.replace('_', '.')}": text for key, text in texts.items()}
    return {"transforms": "t", "transforms.t.type": name, **own}


HOISTED = {**step("HoistField$Value", field="all"), "transforms": "t,u"}


@pytest.mark.parametrize(
    ("settings", "key", "said"),
    [
        (ENVELOPE, "transforms.e.type", "value.converter is not set"),
        ({**ENVELOPE, **PLAIN}, "transforms.e.type", "schemas.enable is false"),
        ({**ENVELOPE, "value.converter": "StringConverter"}, "transforms.e.type", '"StringConverter"'),
        ({**DOCUMENT, **WITH_SCHEMA}, "transforms.e.type", "needs keys with a schema, and key.converter is not set"),
        (
            {**DOCUMENT, **WITH_SCHEMA, "key.converter": "keyfold.Json", "key.converter.schemas.enable": "false"},
            "transforms.e.type",
            "needs keys with a schema, and key.converter.schemas.enable is false",
        ),
        ({**DOCUMENT, "key.converter": "keyfold.Json"}, "transforms.e.type", "needs records with a schema"),
        (
            {**DOCUMENT, **WITH_SCHEMA, "key.converter": "keyfold.Json", "output.key.converter": "keyfold.String"},
            "output.key.converter",
            "transforms.e makes keys of fields",
        ),
        ({**KEY, "key.converter": "keyfold.Json"}, "value.converter", "missing"),
        (step("ExtractField$Value", field="id"), "value.converter", "missing"),
        (step("InsertField$Value", topic_field="t"), "value.converter", "missing"),
        (step("ReplaceField$Key", exclude="id"), "key.converter", "missing"),
        (step("MaskField$Value", fields="id"), "value.converter", "MaskField"),
        (step("Cast$Value", spec="id:string"), "value.converter", "transforms.t"),
        (step("Flatten$Value"), "value.converter", "keyfold.Json"),
        ({**step("Flatten$Value"), "value.converter": "keyfold.Long"}, "value.converter", "without fields"),
        (step("HeaderFrom$Value", fields="a", headers="a", operation="copy"), "value.converter", "missing"),
        (step("TimestampConverter$Value", field="at", target_type="unix"), "value.converter", "missing"),
        ({**KEY, **PLAIN}, "key.converter", "transforms.k makes a key"),
        ({**ID, **PLAIN}, "key.converter", "missing"),
        ({**ID, **AVRO}, "key.converter", "missing"),
        ({**KEY, **PLAIN, "key.converter": "keyfold.Bytes"}, "key.converter", "writes bytes alone"),
        (step("HoistField$Value", field="all"), "value.converter", "makes a value"),
    ],
)
def test_what_cannot_work_is_refused(settings: dict[str, str], key: str, said: str) -> None:
    """Each class by itself is right, and every record would be lost, or deleted rows would stay."""
    assert chain_faults(settings, str) == ()
    (fault,) = fit_faults(settings, {}, str)
    assert fault[0] == key
    assert said in fault[1]


@pytest.mark.parametrize(
    "settings",
    [
        {},
        BY_ID,
        {**ENVELOPE, **WITH_SCHEMA},
        {**ENVELOPE, **AVRO},
        {**ID, **AVRO, "key.converter": "keyfold.Bytes"},
        {**ID, **PLAIN, "key.converter": "keyfold.String"},
        step("TimestampConverter$Value", target_type="unix"),
        {**HOISTED, "transforms.u.type": "ExtractField$Value", "transforms.u.field": "all"},
        step("RegexRouter", regex="a", replacement="b"),
        step("InsertHeader", header="a", value_literal="b"),
        step("Filter"),
        step("TombstoneHandler"),
    ],
)
def test_what_may_work_is_taken(settings: dict[str, str]) -> None:
    """A field may be bytes, where a file names the converter that writes them."""
    assert chain_faults(settings, str) == ()
    assert fit_faults(settings, {}, str) == ()


@pytest.mark.parametrize("settings", [ENVELOPE, KEY, ID, {**ID, **PLAIN}, step("Flatten$Value")])
def test_a_worker_may_name_the_converter(settings: dict[str, str]) -> None:
    """Without its file nothing is said of a converter that the connector does not name; with it, it counts."""
    assert fit_faults(settings, None, str) == ()
    assert fit_faults(settings, {**WITH_SCHEMA, "key.converter": "keyfold.Json"}, str) == ()
    assert fit_faults(settings, {}, str)


def test_change_events_without_a_schema_are_told_of_once() -> None:
    """A topic may hold both kinds: they pass as they are, and the log says so."""
    settings: dict[str, Any] = {**ENVELOPE, **PLAIN}
    chain = Chain(chain_spec(settings), str)
    with capture_logs() as logs:
        for _ in range(2):
            chain.apply(batch((b"k", b'{"before":null,"after":{"id":1}}')))
    assert [one["log_level"] for one in logs] == ["warning"]
    assert "without a schema" in logs[0]["event"]
