"""What headers say of a schema holds for the bytes that they came with, and for none that are written anew."""

from __future__ import annotations

import struct
from typing import Any, Final

import pytest

from compactor.model.record import KEY_IDENTITY
from connectors.chain.chain import Chain
from connectors.chain.spec import chain_faults, chain_spec
from connectors.data.record import Header
from connectors.options import read
from connectors.registry.schema_registry import SchemaRegistry
from connectors.registry.settings import OPTIONS, registry_settings
from tests.support.clocks import ManualClock
from tests.support.memory.schema_registry import MemoryRegistry
from tests.unit.connectors.chain.test_chain import PLAIN_JSON, batch, value
from tests.unit.connectors.chain.test_key_identity import encoded

URL: Final = {"schema.registry.url": "http://a:1/apis/ccompat/v7"}
ROW: Final = {
    "type": "record",
    "name": "Row",
    "fields": [{"name": "id", "type": "int"}, {"name": "x", "type": "int"}],
}
DROPS_X: Final = {
    "transforms": "r",
    "transforms.r.type": "org.apache.kafka.connect.transforms.ReplaceField$Value",
    "transforms.r.exclude": "x",
}
KEY_DROPS_X: Final = {**DROPS_X, "transforms.r.type": "org.apache.kafka.connect.transforms.ReplaceField$Key"}


def avro(side: str) -> dict[str, str]:
    """Returns the settings of Avro on a side."""
    own = f"{side}.converter"
    return {own: "keyfold.Avro", **{f"{own}.{name}": text for name, text in URL.items()}}


def chain(memory: MemoryRegistry, settings: dict[str, str]) -> Chain:
    """Makes a chain whose converters ask `memory`."""
    assert chain_faults(settings, str) == ()
    made = Chain(chain_spec(settings), str)
    for one in (made._key.converter, made._value.converter):
        if hasattr(one, "registry"):
            one.registry = SchemaRegistry(registry_settings(read(OPTIONS, URL)), transport=memory, clock=ManualClock())
    return made


def named(side: str, number: int) -> tuple[str, bytes]:
    """Returns the header that says which schema a side is written with."""
    return f"apicurio.{side}.globalId", struct.pack(">q", number)


def after(made: Chain, key: bytes, data: bytes | None, *headers: tuple[str, bytes]) -> dict[str, Any]:
    """Returns what a record becomes, its headers as pairs."""
    (row,) = made.apply(batch((key, data), headers=headers)).to_pylist()
    assert row["rejected"] is None
    return {**row, "headers": [(one["key"], one["value"]) for one in row["headers"]]}


def test_a_value_that_is_written_anew_loses_the_header_of_its_old_schema() -> None:
    """Its reader would take the id before the data for data; the key's header and others stay."""
    memory = MemoryRegistry()
    number = memory.add(ROW)
    made = chain(memory, {**avro("value"), **DROPS_X})
    kept = [named("key", 9), ("apicurio.value.encoding", b"BINARY"), ("h", b"1")]
    naming = ((f"apicurio.value.{one}", b"x") for one in ("contentHash", "groupId", "artifactId", "version", "msgType"))
    data = encoded(ROW, number, {"id": 7, "x": 1})[5:]
    found = after(made, b"k", data, *kept, named("value", number), named("value", number), *naming)
    assert found["headers"] == kept
    assert found["value"][:1] == b"\0"
    assert found["value"][5:] == b"\x0e"
    again = chain(memory, avro("value"))._value.converter
    assert again.to_connect_data("t", [Header(*one) for one in found["headers"]], found["value"])[1] == {"id": 7}


def test_bytes_that_no_step_has_changed_keep_their_header() -> None:
    """They are what it says."""
    memory = MemoryRegistry()
    number = memory.add(ROW)
    made = chain(memory, {**avro("value"), **_by_id()})
    data = encoded(ROW, number, {"id": 7, "x": 1})[5:]
    headers = [named("value", number), named("key", number)]
    found = after(made, b"k", data, *headers)
    assert (found["key"], found["value"]) == (b"7", data)
    assert found["headers"] == headers[:1]


def _by_id() -> dict[str, str]:
    return {
        "key.converter": "keyfold.String",
        "transforms": "k,f",
        "transforms.k.type": "org.apache.kafka.connect.transforms.ValueToKey",
        "transforms.k.fields": "id",
        "transforms.f.type": "org.apache.kafka.connect.transforms.ExtractField$Key",
        "transforms.f.field": "id",
    }


def test_a_converter_without_a_registry_drops_the_header_too() -> None:
    """What it writes is of no schema at all."""
    settings = {**PLAIN_JSON, "transforms": "t", "transforms.t.type": "InsertField$Value"}
    made = chain(MemoryRegistry(), {**settings, "transforms.t.topic.field": "f"})
    assert after(made, b"k", value(a=1), named("value", 3))["headers"] == []


def test_a_tombstone_has_no_schema() -> None:
    """As nothing stands behind its key."""
    memory = MemoryRegistry()
    envelope = {
        "type": "record",
        "name": "E.Envelope",
        "fields": [{"name": "before", "type": ROW}, {"name": "after", "type": ["null", "Row"]}],
    }
    event = {"type": "io.debezium.transforms.ExtractNewRecordState"}
    settings = {**avro("value"), "transforms": "t", **{f"transforms.t.{name}": text for name, text in event.items()}}
    number = memory.add({**envelope, "name": "Envelope", "namespace": "E", "connect.name": "E.Envelope"})
    data = encoded({**envelope, "name": "Envelope"}, number, {"before": {"id": 7, "x": 1}, "after": None})[5:]
    found = after(chain(memory, settings), b"k", data, named("value", number))
    assert (found["value"], found["headers"]) == (None, [])


def test_a_key_that_is_written_anew_is_compared_by_what_it_holds() -> None:
    """Keys with the id in a header and before the data become one key where they mean one, and two otherwise."""
    memory = MemoryRegistry()
    number = memory.add(ROW)
    made = chain(memory, {**avro("key"), **KEY_DROPS_X, "compaction.key.identity": "avro"})
    before = [encoded(ROW, number, {"id": one, "x": one}) for one in (7, 8, 12_345)]
    found = [after(made, key[5:], b"v", named("key", number), named("value", 3)) for key in before]
    found.append(after(made, before[0], b"v", named("value", 3)))
    assert [one[KEY_IDENTITY] for one in found] == [b'{"id":7}', b'{"id":8}', b'{"id":12345}', b'{"id":7}']
    assert found[0]["key"] == found[3]["key"]
    assert all(one["headers"] == [named("value", 3)] for one in found)


def test_a_header_that_a_converter_puts_in_another_s_place_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """There are as many as before."""

    def swaps(_: Any, __: str, headers: list[Header], *___: Any) -> bytes:
        headers[0] = Header("new", b"1")
        return b"v"

    monkeypatch.setattr("connectors.converters.json.converter.JsonConverter.from_connect_data", swaps)
    settings = {**PLAIN_JSON, "transforms": "t", "transforms.t.type": "InsertField$Value"}
    made = chain(MemoryRegistry(), {**settings, "transforms.t.topic.field": "f"})
    assert after(made, b"k", value(a=1), ("old", b"1"))["headers"] == [("new", b"1")]
