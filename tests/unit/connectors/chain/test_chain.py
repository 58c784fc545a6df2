"""A connector's chain changes what its steps change, rejects bad records alone, and counts what it drops."""

from __future__ import annotations

import base64
import json
from typing import Any
from unittest.mock import Mock

import httpx
import pyarrow as pa
import pytest

from compactor.model.record import NULL_KEY, SOURCE, TopicPartition
from compactor.secret_forms import HIDDEN
from connectors.chain.chain import Chain
from connectors.chain.conversion import RejectedError
from connectors.chain.spec import chain_faults, chain_spec
from connectors.errors import ConfigError, DataError, PortionLateError, RegistryError
from connectors.known_values import hide_all
from connectors.placeholders import resolve
from connectors.registry.schema_registry import SchemaRegistry
from connectors.registry.settings import registry_settings
from connectors.rejection import Stage, rejection_of
from connectors.source.arrow_records import range_rows
from connectors.source.plan import SourceRange
from tests.support.clocks import ManualClock

PLAIN_JSON = {"value.converter": "JsonConverter", "value.converter.schemas.enable": "false"}
BY_ID = {
    **PLAIN_JSON,
    "key.converter": "StringConverter",
    "transforms": "key,id",
    "transforms.key.type": "org.apache.kafka.connect.transforms.ValueToKey",
    "transforms.key.fields": "id",
    "transforms.id.type": "org.apache.kafka.connect.transforms.ExtractField$Key",
    "transforms.id.field": "id",
}

AVRO = {
    "value.converter": "keyfold.Avro",
    "value.converter.schema.registry.url": "http://a:1",
    "transforms": "i",
    "transforms.i.type": "InsertField$Value",
    "transforms.i.static.field": "z",
    "transforms.i.static.value": "1",
}


def chain(settings: dict[str, str]) -> Chain:
    """Makes the chain of a connector with these settings, which have no fault."""
    assert chain_faults(settings, str) == ()
    return Chain(chain_spec(settings), str)


def batch(*records: tuple[bytes | None, bytes | None], headers: Any = ()) -> pa.RecordBatch:
    """Makes a batch of records of t-0 with rising offsets."""
    rows = [
        {"topic": "t", "partition": 0, "offset": at, "timestamp": 7, "timestamp_type": 0, "key": key, "value": value,
         "headers": [{"key": name, "value": data} for name, data in headers]}
        for at, (key, value) in enumerate(records)
    ]  # fmt: skip
    return pa.RecordBatch.from_pylist(rows, schema=SOURCE)


def value(**members: Any) -> bytes:
    """Returns JSON with blanks in it, so that it is seen whether it was written anew."""
    return json.dumps(members).encode()


def test_the_key_is_made_of_the_value_and_the_value_stays_byte_for_byte() -> None:
    """What no step changes is not encoded again, blanks and all."""
    found = chain(BY_ID).apply(batch((b"x", value(id="a", n=1)), (None, value(id="b"))))
    assert found["key"].to_pylist() == [b"a", b"b"]
    assert found["value"].to_pylist() == [value(id="a", n=1), value(id="b")]
    assert found["rejected"].null_count == 2


def test_a_value_that_is_changed_is_encoded_by_its_converter() -> None:
    """Here with a field more."""
    settings = {
        **PLAIN_JSON,
        "transforms": "t",
        "transforms.t.type": "InsertField$Value",
        "transforms.t.topic.field": "topic",
    }
    found = chain(settings).apply(batch((b"k", value(a=1)), (b"k", None)))
    assert found["value"].to_pylist() == [b'{"a":1,"topic":"t"}', None]


def test_a_record_that_cannot_be_read_is_rejected_alone_and_keeps_its_bytes() -> None:
    """Its neighbours pass; the reason names stage and class."""
    found = chain(BY_ID).apply(batch((b"x", b"{"), (b"y", value(id="b"))))
    assert found["key"].to_pylist() == [b"x", b"b"]
    assert found["value"].to_pylist() == [b"{", value(id="b")]
    first, second = found["rejected"].to_pylist()
    rejection = rejection_of(first)
    assert (rejection.stage, rejection.class_name, rejection.exception) == (
        Stage.VALUE_CONVERTER,
        "JsonConverter",
        "DataError",
    )
    assert second is None


def test_a_rejection_says_what_to_do_next() -> None:
    """Behind what is wrong, however long that is."""
    error = RejectedError(Stage.VALUE_CONVERTER, "keyfold.Avro", DataError("x" * 5_000, "Ask its writer."))
    assert rejection_of(str(error.rejection)).message == "x" * 2_000 + " Ask its writer."
    assert RejectedError(Stage.TRANSFORMATION, "T", ValueError("no")).rejection.message.startswith(
        "The record is not taken"
    )


def test_a_record_that_cannot_be_transformed_is_rejected_with_the_transform_s_name() -> None:
    """A tombstone has no fields of which a key could be made."""
    (rejected,) = chain(BY_ID).apply(batch((b"x", None)))["rejected"].to_pylist()
    assert rejection_of(rejected).stage is Stage.TRANSFORMATION
    assert rejection_of(rejected).class_name == "org.apache.kafka.connect.transforms.ValueToKey"


def test_a_record_without_a_key_is_rejected_with_what_it_came_with() -> None:
    """A field that is missing makes a null key, which is the key of nothing."""
    found = chain(BY_ID).apply(batch((b"x", value(n=1))))
    assert found["rejected"].to_pylist() == [NULL_KEY]
    assert found["key"].to_pylist() == [b"x"]


def test_dropped_records_are_counted_by_their_range_report() -> None:
    """Their offsets are read; the report says how many there were."""
    settings = {
        "transforms": "f",
        "transforms.f.type": "Filter",
        "transforms.f.predicate": "p",
        "predicates": "p",
        "predicates.p.type": "RecordIsTombstone",
    }
    report = range_rows([(SourceRange("t", "id", 0, 0, 3), 0, 3)])
    records, stated = chain(settings).through([batch((b"a", b"1"), (b"b", None), (b"c", None)), report])
    assert records["offset"].to_pylist() == [0]
    assert [row["range"]["filtered"] for row in stated.to_pylist()] == [2]


def test_a_predicate_can_be_negated() -> None:
    """Then the others are dropped."""
    settings = {
        "transforms": "f",
        "transforms.f.type": "Filter",
        "transforms.f.predicate": "p",
        "transforms.f.negate": "true",
        "predicates": "p",
        "predicates.p.type": "HasHeaderKey",
        "predicates.p.name": "keep",
    }
    made = chain(settings)
    assert made.apply(batch((b"a", b"1"), headers=[("keep", b"")])).num_rows == 1
    assert made.apply(batch((b"a", b"1"), headers=[("h", b"")])).num_rows == 0
    assert made.filtered == {TopicPartition("t", 0): 1}


def test_headers_of_transforms_are_written_and_others_stay() -> None:
    """Also those whose value is null, and those of one name."""
    settings = {
        **PLAIN_JSON,
        "transforms": "h,i",
        "transforms.h.type": "HeaderFrom$Value",
        "transforms.h.fields": "a",
        "transforms.h.headers": "a",
        "transforms.h.operation": "copy",
        "transforms.i.type": "InsertHeader",
        "transforms.i.header": "n",
        "transforms.i.value.literal": "1.0",
    }
    found = chain(settings).apply(batch((b"k", value(a={"b": [1, "c"]})), headers=[("h", None), ("h", b"\xff")]))
    (headers,) = found["headers"].to_pylist()
    assert [(one["key"], one["value"]) for one in headers] == [
        ("h", None),
        ("h", b"\xff"),
        ("a", b'{"b":[1,"c"]}'),
        ("n", b"1"),
    ]


INSERT = {"transforms": "i", "transforms.i.type": "InsertHeader", "transforms.i.header": "n"}


@pytest.mark.parametrize(
    ("settings", "literal", "written"),
    [
        ({"header.converter": "JsonConverter", "header.converter.schemas.enable": "false"}, "[1,2]", b"[1,2]"),
        ({"header.converter": "JsonConverter"}, "1", b'{"schema":{"type":"int8","optional":false},"payload":1}'),
        ({"header.converter": "LongConverter"}, "9223372036854775807", b"\x7f" + b"\xff" * 7),
        ({"header.converter": "BooleanConverter"}, "true", b"\x01"),
    ],
)
def test_a_converter_of_kafka_s_writes_headers_as_it_writes_values(
    settings: dict[str, str], literal: str, written: bytes
) -> None:
    """Its fromConnectHeader is its fromConnectData."""
    found = chain({**INSERT, **settings, "transforms.i.value.literal": literal}).apply(batch((b"k", b"v")))
    assert found["headers"].to_pylist() == [[{"key": "n", "value": written}]]


@pytest.mark.parametrize("name", ["org.apache.kafka.connect.converters.ByteArrayConverter", "keyfold.Long"])
def test_a_header_that_cannot_be_written_names_the_class_as_the_file_does(name: str) -> None:
    """So that `dlq --class` finds what the file says."""
    made = chain({**INSERT, "header.converter": name, "transforms.i.value.literal": "text"})
    (rejected,) = made.apply(batch((b"k", b"v")))["rejected"].to_pylist()
    assert (rejection_of(rejected).stage, rejection_of(rejected).class_name) == (Stage.HEADER_CONVERTER, name)


def test_a_transform_of_keys_does_not_read_values() -> None:
    """A value that its converter cannot read passes, byte for byte."""
    settings = {
        **PLAIN_JSON,
        "key.converter": "JsonConverter",
        "key.converter.schemas.enable": "false",
        "transforms": "x",
        "transforms.x.type": "ExtractField$Key",
        "transforms.x.field": "id",
    }
    found = chain(settings).apply(batch((b'{"id": 7}', b"{")))
    assert [found[name].to_pylist() for name in ("key", "value", "rejected")] == [[b"7"], [b"{"], [None]]


def test_what_no_step_looks_at_is_not_converted() -> None:
    """A converter that would refuse the bytes is not asked."""
    settings = {**PLAIN_JSON, "transforms": "d", "transforms.d.type": "DropHeaders", "transforms.d.headers": "x"}
    found = chain(settings).apply(batch((b"k", b"{"), headers=[("x", b"")]))
    assert found["value"].to_pylist() == [b"{"]
    assert found["headers"].to_pylist() == [[]]


@pytest.mark.parametrize(
    "step",
    [
        "converters.json.converter.JsonConverter.to_connect_data",
        "transforms.value_to_key.ValueToKey.apply",
        "transforms.predicates.TopicNameMatches.test",
    ],
)
def test_a_registry_that_does_not_answer_rejects_no_record(monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    """The whole batch fails, to be read again, whichever step has asked; the record is named: it may be why."""

    def away(*_: Any) -> Any:
        raise RegistryError("It does not answer.")

    predicate = {"predicates.p.type": "TopicNameMatches", "predicates.p.pattern": "t"}
    made = chain({**BY_ID, "transforms.key.predicate": "p", "predicates": "p", **predicate})
    monkeypatch.setattr(f"connectors.{step}", away)
    with pytest.raises(RegistryError, match=r"It was asked for the record at topic t, partition 0, offset 0\."):
        made.apply(batch((b"k", value(id=1))))


def test_a_portion_that_is_late_names_no_record(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is all of its records that take long, and the reason is logged once for them."""
    late = Mock(side_effect=PortionLateError("It is late."))
    monkeypatch.setattr("connectors.converters.json.converter.JsonConverter.to_connect_data", late)
    with pytest.raises(PortionLateError) as caught:
        chain(BY_ID).apply(batch((b"k", value(id=1))))
    assert caught.value.message == "It is late."


def test_a_record_of_an_old_format_has_no_timestamp() -> None:
    """Its -1 is no moment: InsertField adds nothing, as with Kafka's own sinks."""
    settings = {**PLAIN_JSON, "transforms": "at", "transforms.at.type": "InsertField$Value"}
    records = batch((b"k", value(id=1)))
    old = records.set_column(3, "timestamp", pa.array([-1], pa.int64()))
    made = chain({**settings, "transforms.at.timestamp.field": "at"}).apply(old)
    assert json.loads(made["value"].to_pylist()[0]) == {"id": 1}


MASK = {
    "value.converter": "JsonConverter",
    "value.converter.schemas.enable": "false",
    "transforms": "m",
    "transforms.m.type": "MaskField$Value",
    "transforms.m.fields": "a",
    "transforms.m.replacement": "${env:MASK}",
}


@pytest.mark.parametrize("secret", ["geheim-4711", "xyz", "geheim " * 400])
def test_a_rejection_does_not_show_what_a_placeholder_stands_for(secret: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It goes into files, logs and headers of dead letters; a number is asked of the replacement here.

    Nor is it said what is wrong: it may quote the value, and the record may hold a guess of it.
    """
    monkeypatch.setenv("MASK", secret)
    made = Chain(chain_spec(MASK), resolve)
    (rejected,) = made.apply(batch((b"k", value(a=1))))["rejected"].to_pylist()
    assert rejected == (
        "TRANSFORMATION MaskField$Value DataError: The record is not taken: what a placeholder stands for is not "
        "shown, nor what is wrong with it. Placeholders are in transforms.m.replacement. Write them out in the "
        "connector's file to see it."
    )


@pytest.mark.parametrize("status", [404, 400])
def test_no_error_shows_a_password_that_is_written_out(status: int) -> None:
    """Neither that of a record nor the connector's: a registry may repeat what it was sent."""
    of_registry = {
        **AVRO,
        "value.converter.basic.auth.credentials.source": "USER_INFO",
        "value.converter.basic.auth.user.info": "u:geheim-4711",
    }
    found = chain(of_registry)
    sent = base64.b64encode(b"u:geheim-4711").decode()
    said = {"error_code": 40403, "message": f"{{'x': '{sent}'}} Basic {sent} geheim-4711"}
    answer = httpx.MockTransport(lambda _: httpx.Response(status, json=said))
    reader: Any = found._value.converter
    reader.registry = SchemaRegistry(registry_settings(reader.options), transport=answer, clock=ManualClock())
    try:
        text = found.apply(batch((b"k", b"\0\0\0\0\1\2x")))["rejected"].to_pylist()[0]
    except RegistryError as error:
        text = error.message
    assert "{'x': '[hidden]" in text
    assert "geheim" not in text
    assert sent.rstrip("=") not in text
    assert hide_all("geheim-4711") == HIDDEN


def test_a_registry_that_does_not_answer_is_named_by_its_placeholder(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error is the connector's, and is shown in its status."""
    monkeypatch.setenv("REGISTRY", "http://127.0.0.1:9")
    settings = {**MASK, "value.converter": "keyfold.Avro", "value.converter.schema.registry.url": "${env:REGISTRY}"}
    del settings["value.converter.schemas.enable"]
    made = Chain(chain_spec({**settings, "transforms.m.replacement": "x"}), resolve)
    with pytest.raises(RegistryError, match=r"\$\{env:REGISTRY\}") as caught:
        made.apply(batch((b"k", b"\0\0\0\0\1x")))
    assert "127.0.0.1" not in caught.value.message


def test_settings_that_cannot_be_used_here_are_told_without_their_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """An executor may have other files and variables than the worker that has checked them."""
    monkeypatch.setenv("MASK", "geheim")
    with pytest.raises(ConfigError) as caught:
        Chain(chain_spec({**MASK, "transforms.m.replace.null.with.default": "${env:MASK}"}), resolve)
    assert "geheim" not in caught.value.message
    assert '"${env:MASK}" is not allowed: allowed is true or false' in caught.value.message
