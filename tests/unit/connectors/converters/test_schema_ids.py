"""Which schema a message is written with: by Confluent's id or GUID, by Apicurio's contentId or globalId."""

from __future__ import annotations

import io
import struct
from collections.abc import Mapping
from typing import Any, Final
from uuid import UUID

import fastavro
import httpx
import pytest

from connectors.chain.connect_settings import settled
from connectors.chain.key_identity import AvroKeyIdentity
from connectors.converters.avro.converter import AvroConverter
from connectors.converters.protobuf.converter import ProtobufConverter
from connectors.converters.registered import RegisteredConverter
from connectors.data.record import Header
from connectors.data.schema import INT32, Field, Schema, Type
from connectors.errors import DataError, RegistryError
from connectors.options import OptionsError, read
from tests.support.memory.schema_registry import MemoryRegistry
from tests.unit.connectors.registry.test_schema_registry import registry

CCOMPAT: Final = "http://a:1/apis/ccompat/v7"
GUID: Final = "89791762-2336-4186-9674-299b90a802e2"
GUID_BYTES: Final = b"\x01" + UUID(GUID).bytes
OLD: Final = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}
NEW: Final = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}, {"name": "b", "type": "int"}]}


def encoded(schema: Any, value: Any) -> bytes:
    """Returns Avro without an id."""
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


def converter(
    memory: MemoryRegistry,
    settings: Mapping[str, str] | None = None,
    kind: type[RegisteredConverter] = AvroConverter,
    *,
    is_key: bool = False,
) -> RegisteredConverter:
    """Makes a converter that asks `memory`."""
    given = {"schema.registry.url": CCOMPAT, **(settings or {})}
    made = kind(read(kind.OPTIONS, settled(kind.OPTIONS, given, converts=True)), is_key=is_key)
    made.registry = registry(memory, schema_registry_url=CCOMPAT)
    return made


@pytest.fixture
def memory() -> MemoryRegistry:
    """A registry in which one content has two globalIds, so that the newer schema has contentId 2 and globalId 3."""
    made = MemoryRegistry()
    old, new = made.add(OLD), made.add(NEW)
    made.guids = {GUID: new}
    made.global_ids = {1: old, 2: old, 3: new}
    return made


@pytest.mark.parametrize(
    ("side", "header", "data", "expected"),
    [
        ("value", None, b"\x00\x00\x00\x00\x02", {"a": 1, "b": 2}),
        ("value", ("__value_schema_id", GUID_BYTES), b"", {"a": 1, "b": 2}),
        ("key", ("__key_schema_id", GUID_BYTES), b"", {"a": 1, "b": 2}),
        ("value", ("__value_schema_id", b"\x00\x00\x00\x00\x02"), b"", {"a": 1, "b": 2}),
        ("value", ("__key_schema_id", GUID_BYTES), b"\x00\x00\x00\x00\x01", {"a": 1}),
        ("value", None, GUID_BYTES, {"a": 1, "b": 2}),
        ("value", ("apicurio.value.contentId", struct.pack(">q", 2)), b"", {"a": 1, "b": 2}),
        ("value", ("apicurio.value.globalId", struct.pack(">q", 3)), b"", {"a": 1, "b": 2}),
        ("value", ("apicurio.value.globalId", struct.pack(">q", 2)), b"", {"a": 1}),
    ],
)
def test_a_header_says_which_schema_before_the_data_do(
    memory: MemoryRegistry, side: str, header: Any, data: bytes, expected: dict[str, int]
) -> None:
    """A 0 and an id, or a 1 and the 16 bytes of a GUID, as Confluent's DualSchemaIdDeserializer reads them."""
    headers = [Header(*header)] if header else []
    written = data + encoded(NEW if "b" in expected else OLD, expected)
    assert converter(memory, is_key=side == "key").to_connect_data("t", headers, written)[1] == expected


def test_of_several_headers_the_last_one_counts(memory: MemoryRegistry) -> None:
    """As for Java's readers (`Headers.lastHeader`)."""
    headers = [Header("__value_schema_id", b"\x00\x00\x00\x00\x01"), Header("__value_schema_id", GUID_BYTES)]
    assert converter(memory).to_connect_data("t", headers, encoded(NEW, {"a": 1, "b": 2}))[1] == {"a": 1, "b": 2}


@pytest.mark.parametrize("value", [b"\x01" + b"\x00" * 15, b"\x02" + b"\x00" * 16, b"\x00\x01"])
def test_a_header_that_is_no_id_is_an_error_of_the_record(memory: MemoryRegistry, value: bytes) -> None:
    """No registry is asked for it."""
    with pytest.raises(DataError, match="there is no id of a schema"):
        converter(memory).to_connect_data("t", [Header("__value_schema_id", value)], b"\x00\x00\x00\x00\x01\x02")
    assert not memory.asked


def test_the_path_of_a_message_of_protobuf_stands_after_the_guid() -> None:
    """Then the data are the message alone."""
    memory = MemoryRegistry()
    text = 'syntax = "proto3"; message A { int32 a = 1; } message B { string b = 1; }'
    memory.guids = {GUID: memory.add(text, schemaType="PROTOBUF")}
    own = converter(memory, kind=ProtobufConverter)
    second, first = GUID_BYTES + b"\x02\x02", GUID_BYTES + b"\x00"
    assert own.to_connect_data("t", [Header("__value_schema_id", second)], b"\x0a\x01x")[1] == {"b": "x"}
    assert own.to_connect_data("t", [Header("__value_schema_id", first)], b"\x08\x07")[1] == {"a": 7}
    with pytest.raises(DataError):
        own.to_connect_data("t", [Header("__value_schema_id", GUID_BYTES)], b"\x08\x07")


@pytest.mark.parametrize(
    "page", [httpx.Response(404, text="<html>not here</html>"), httpx.Response(404, json={"title": "Not Found"})]
)
def test_a_guid_is_an_error_of_the_record_if_the_registry_has_none(
    memory: MemoryRegistry, page: httpx.Response
) -> None:
    """Any record can have one, so it must not make the connector wait: what answers as a registry does is asked."""
    memory.fails = [page]
    with pytest.raises(DataError, match="does not take the request for schema with GUID") as error:
        converter(memory).to_connect_data("t", [Header("__value_schema_id", GUID_BYTES)], b"\x00")
    assert "does not know schemas by GUID" in error.value.action
    assert memory.asked == [f"GET /schemas/guids/{GUID}", "GET /schemas/types"]


@pytest.mark.parametrize(
    ("settings", "header", "data"),
    [
        ({}, ("apicurio.value.globalId", b"\0\0\0\0\0\0\0\1"), b"\0"),
        ({}, ("apicurio.value.globalId", b"\xff" * 8), b"\0"),
        ({}, ("apicurio.value.contentId", struct.pack(">q", 1 << 40)), b"\0"),
        ({}, ("apicurio.value.contentId", struct.pack(">q", 1 << 31)), b"\0"),
        ({}, ("apicurio.value.contentId", struct.pack(">q", -1)), b"\0"),
        ({}, ("__value_schema_id", b"\0\xff\xff\xff\xff"), b"\0"),
        ({}, None, b"\0\xff\xff\xff\xff\0"),
        ({}, None, b"\0\x80\0\0\0\0"),
        ({"apicurio.registry.id-handler": "Legacy8ByteIdHandler"}, None, b"\0" + b"\xff" * 8 + b"\0"),
        ({"schema.registry.url": CCOMPAT}, ("apicurio.value.globalId", b"\xff" * 8), b"\0"),
        ({"schema.registry.url": CCOMPAT, "apicurio.registry.use-id": "globalId"}, None, b"\0\xff\xff\xff\xff\0"),
    ],
)
@pytest.mark.parametrize("kind", [AvroConverter, ProtobufConverter])
def test_an_id_that_no_registry_of_the_address_has_is_an_error_of_the_record(
    memory: MemoryRegistry, settings: dict[str, str], header: Any, data: bytes, kind: type[RegisteredConverter]
) -> None:
    """Any record can bring one, and the path that it makes is none of the registry's, so nothing is asked."""
    own = converter(memory, {"schema.registry.url": "http://a:1", **settings}, kind)
    with pytest.raises(DataError, match=r"names its schema by (globalId|id) -?\d+") as error:
        own.to_connect_data("t", [Header(*header)] if header else [], data)
    assert "/apis/ccompat/v7" in error.value.action
    assert not memory.asked


def test_apicurio_s_ids_are_longs(memory: MemoryRegistry) -> None:
    """One that it does not have is asked for."""
    headers = [Header("apicurio.value.contentId", struct.pack(">q", 1 << 40))]
    with pytest.raises(DataError, match=f"no schema {1 << 40}"):
        converter(memory).to_connect_data("t", headers, b"\0")
    assert memory.asked == [f"GET /schemas/ids/{1 << 40}"]


def test_a_proxy_s_page_in_place_of_a_guid_is_waited_for() -> None:
    """It says nothing of the record: what is asked for besides is not answered as by a registry either."""
    memory = MemoryRegistry()
    memory.always = httpx.Response(404, text="<html>not here</html>")
    with pytest.raises(RegistryError, match="no JSON"):
        converter(memory).to_connect_data("t", [Header("__value_schema_id", GUID_BYTES)], b"\x00")


def test_a_file_of_protobuf_is_asked_for_by_globalid_too() -> None:
    """Apicurio answers with its text; the page of a proxy is none, and no record is let go for it."""
    memory = MemoryRegistry()
    number = memory.add('syntax = "proto3"; message A { int32 a = 1; }', schemaType="PROTOBUF")
    memory.global_ids = {5: number}
    headers = [Header("apicurio.value.globalId", struct.pack(">q", 5))]
    assert converter(memory, kind=ProtobufConverter).to_connect_data("t", headers, b"\x00\x08\x07")[1] == {"a": 7}
    memory.always = httpx.Response(200, text="<html>Log in</html>")
    with pytest.raises(RegistryError, match="no JSON"):
        converter(memory, kind=ProtobufConverter).to_connect_data("t", headers, b"\x00\x08\x07")


def test_protobuf_is_written_with_its_globalid() -> None:
    """Apicurio is sent the text of the file as it is, which is no JSON."""
    memory = MemoryRegistry()
    own = converter(memory, {"apicurio.registry.use-id": "globalId"}, ProtobufConverter)
    memory.global_ids = {8: memory.add("{}")}
    schema = Schema(type=Type.STRUCT, name="A", fields=(Field("a", INT32),))
    data = own.from_connect_data("t", [], schema, {"a": 7})
    assert data is not None
    assert struct.unpack(">bI", data[:5]) == (0, 9)
    assert memory.requests[-1].headers["Content-Type"] == "application/x-protobuf"
    assert own.to_connect_data("t", [], data)[1] == {"a": 7}


def with_id(number: int, schema: Any, value: Any) -> bytes:
    """Writes a value as Confluent's serializers do."""
    return struct.pack(">bI", 0, number) + encoded(schema, value)


@pytest.mark.parametrize(
    ("settings", "is_global"),
    [
        ({}, False),
        ({"apicurio.registry.use-id": "contentId"}, False),
        ({"apicurio.registry.use-id": "globalId"}, True),
        ({"apicurio.registry.as-confluent": "true"}, True),
        ({"apicurio.registry.as-confluent": "true", "apicurio.registry.use-id": "contentId"}, False),
    ],
)
def test_an_id_before_the_data_is_the_one_that_the_file_says(
    memory: MemoryRegistry, settings: dict[str, str], is_global: bool
) -> None:
    """With as-confluent, which Apicurio's converters of 2.x have alone, it is globalId, their default."""
    row, number = {"a": 1, "b": 2}, 3 if is_global else 2
    own = converter(memory, settings)
    schema, value = own.to_connect_data("t", [], with_id(number, NEW, row))
    assert value == row
    again = own.from_connect_data("t", [], schema, value)
    assert again is not None
    assert struct.unpack(">bI", again[:5]) == (0, 4 if is_global else 3), "Apicurio's ids of the schema that was made"
    assert own.to_connect_data("t", [], again)[1] == row, "what is written is read by the same kind of id"
    other = with_id(9, NEW, row)
    with pytest.raises(DataError) as error:
        own.to_connect_data("t", [], other)
    asked, instead = ("globalId", "contentId") if is_global else ("contentId", "globalId")
    assert f"apicurio.registry.use-id={instead}" in error.value.action
    assert asked in error.value.action


def test_types_of_other_artifacts_are_found_by_globalid(memory: MemoryRegistry) -> None:
    """Apicurio lists them apart from the schema."""
    memory.add(OLD, "old")
    outer = {"type": "record", "name": "O", "fields": [{"name": "r", "type": "R"}]}
    memory.global_ids[7] = memory.add(outer, references=[{"name": "R", "subject": "old", "version": 1}])
    data = struct.pack(">bI", 0, 7) + encoded(OLD, {"a": 5})
    own = converter(memory, {"apicurio.registry.use-id": "globalId"})
    assert own.to_connect_data("t", [], data)[1] == {"r": {"a": 5}}


def test_a_globalid_needs_the_address_of_apicurio() -> None:
    """Its own interface is looked for beside the other one."""
    given = {"schema.registry.url": "http://a:1", "apicurio.registry.use-id": "globalId"}
    with pytest.raises(OptionsError) as error:
        AvroConverter(read(AvroConverter.OPTIONS, given), is_key=False)
    assert [name for name, _ in error.value.faults] == ["apicurio.registry.use-id"]


def test_a_key_s_encoding_tells_the_kind_of_its_id(memory: MemoryRegistry) -> None:
    """Else a contentId and a globalId of one number would be one encoding."""
    data = encoded(NEW, {"a": 1, "b": 2})
    own = converter(memory, is_key=True)
    assert isinstance(own, AvroConverter)
    identity = AvroKeyIdentity(own)
    by_header = [
        identity.of([Header("apicurio.key.globalId", struct.pack(">q", 3))], data),
        identity.of([Header("__key_schema_id", GUID_BYTES)], data),
        identity.of([Header("apicurio.key.contentId", struct.pack(">q", 2))], data),
        identity.of([], struct.pack(">bI", 0, 2) + data),
    ]
    assert [each.encoding for each in by_header] == ["g3h", f"{GUID}h", "2h", "2"]
    assert len({each.identity for each in by_header}) == 1
