"""The connector files of configs/ do what they are examples of, on a real broker."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from connectors.dev.embedded_kafka import EmbeddedKafka, free_port
from connectors.errors import RegistryError
from connectors.source.read_route import APART_IN_DRIVER_MAX
from tests.support.deployment import Deployment
from tests.support.kafka import consume_all, create_topic, produce
from tests.support.records import BASE_MS, read_snapshot

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONFIGS: Final = Path(__file__).parents[2] / "configs"


def example(name: str, folder: Path, bootstrap: str, unique: str) -> Deployment:
    """Returns the connector of a file in configs/, all of whose topics begin with a name that is this test's own."""
    settings: dict[str, Any] = json.loads((CONFIGS / f"{name}.json").read_text())
    topic = f"{unique}.{settings['topics']}"
    found = Deployment(folder, bootstrap, topic)
    settings["output.topic"] = settings["output.topic"].replace("shop.", f"{unique}.shop.")
    dead = "errors.deadletterqueue.topic.name"
    if dead in settings:
        settings[dead] = f"{unique}.{settings[dead]}"
    if "snapshot.location" in settings:
        settings["snapshot.location"] = str(folder / "snapshots")
    found.settings = {**settings, "name": found.name, "topics": topic}
    create_topic(bootstrap, topic, 1, cleanup_policy="delete")
    return found


def event(**members: Any) -> bytes:
    """Returns an event in JSON, with blanks."""
    return json.dumps(members).encode()


def headers_of(record: Any) -> Mapping[str, bytes]:
    """Returns the headers of a record that was read, by name."""
    return dict(record.headers)


def test_events_become_the_state_of_each_entity(
    spark: SparkSession, broker: EmbeddedKafka, tmp_path: Path, topic_name: str
) -> None:
    """The last event of each order, by a key of the value; heartbeats supersede nothing, no JSON is a dead letter."""
    deployment = example("entity-state", tmp_path, broker.bootstrap, topic_name)
    produce(
        broker.bootstrap,
        deployment.topic,
        [
            (0, None, event(order_id="7", status="new", trace_id="x"), [], BASE_MS),
            (0, b"k", event(order_id="8", status="new"), [], BASE_MS),
            (0, None, event(order_id="9"), [("heartbeat", b"")], BASE_MS),
            (0, b"bad", b"{not json", [("h", b"1")], BASE_MS),
            (0, None, event(status="of no order"), [], BASE_MS),
            (0, None, event(order_id="7", status="paid", trace_id="y"), [], BASE_MS),
            (0, None, event(order_id="8", status="alive"), [("heartbeat", b"")], BASE_MS),
        ],
    )
    state = deployment.run_once(spark)
    found = consume_all(broker.bootstrap, f"{topic_name}.shop.orders.state")
    assert {(one.key, one.value) for one in found} == {
        (b"8", event(order_id="8", status="new").replace(b": ", b":").replace(b", ", b",")),
        (b"7", b'{"order_id":"7","status":"paid"}'),
    }
    assert {log.position for log in state.logs} == {7}
    letters = consume_all(broker.bootstrap, f"{topic_name}.shop.events.dead")
    assert [(one.key, one.value) for one in letters] == [
        (b"bad", b"{not json"),
        (None, event(status="of no order")),
    ]
    first, second = map(headers_of, letters)
    assert first["h"] == b"1"
    assert first["__connect.errors.stage"] == b"VALUE_CONVERTER"
    assert first["__connect.errors.class.name"] == b"keyfold.Json"
    assert first["__connect.errors.exception.class.name"] == b"connectors.errors.DataError"
    assert first["__connect.errors.offset"] == b"3"
    assert second["__connect.errors.stage"] == b"TASK_PUT"


def test_a_store_of_settings_has_the_current_value_of_each(
    spark: SparkSession, broker: EmbeddedKafka, tmp_path: Path, topic_name: str
) -> None:
    """Texts stay byte for byte, a deleted one is gone; the output has the name that the router gives it."""
    deployment = example("settings-store", tmp_path, broker.bootstrap, topic_name)
    changes = [(0, b"color", b"red"), (0, b"size", "größer".encode()), (0, b"color", b"blue"), (0, b"old", b"1")]
    produce(broker.bootstrap, deployment.topic, [*changes, (0, b"old", None)])
    deployment.run_once(spark)
    found = consume_all(broker.bootstrap, f"{topic_name}.settings.current")
    assert [(one.key, one.value) for one in found] == [
        (b"size", "größer".encode()),
        (b"color", b"blue"),
        (b"old", None),
    ]
    assert all(headers_of(one)["store"] == b"settings" for one in found)
    _, table = read_snapshot(deployment)
    assert {str(key, "utf-8") if isinstance(key, bytes) else key for _, key in table} == {"color", "size"}


ROW: Final = {
    "type": "struct",
    "optional": True,
    "name": "shop.public.customers.Value",
    "fields": [
        {"field": "id", "type": "int32"},
        {
            "field": "balance",
            "type": "bytes",
            "name": "org.apache.kafka.connect.data.Decimal",
            "parameters": {"scale": "2"},
        },
    ],
}
CHANGE: Final = {
    "type": "struct",
    "name": "shop.public.customers.Envelope",
    "fields": [{**ROW, "field": "before"}, {**ROW, "field": "after"}, {"field": "op", "type": "string"}],
}
ROW_KEY: Final = {"type": "struct", "fields": [{"field": "id", "type": "int32"}]}


def change(number: int, balance: str | None) -> tuple[int, bytes, bytes]:
    """Returns a change event in JSON with schemas, as Debezium writes it; without a balance the row is deleted."""
    row = {"id": number, "balance": balance or "AA=="}
    payload = {"before": None, "after": row, "op": "u"} if balance else {"before": row, "after": None, "op": "d"}
    key = {"schema": ROW_KEY, "payload": {"id": number}}
    return 0, json.dumps(key).encode(), json.dumps({"schema": CHANGE, "payload": payload}).encode()


def test_tables_of_a_database_become_rows_in_another_form(
    spark: SparkSession, broker: EmbeddedKafka, tmp_path: Path, topic_name: str
) -> None:
    """Change events in JSON with schemas become rows in plain JSON, and what is no table is left."""
    settings = json.loads((CONFIGS / "database-rows.json").read_text())
    deployment = Deployment(tmp_path, broker.bootstrap, topic_name)
    own = {name: text.replace("shop", topic_name) for name, text in settings.items() if isinstance(text, str)}
    deployment.settings = {**settings, **own, "name": deployment.name}
    for name in ("public.customers", "public.orders", "transaction", "public.debezium_signal", "audit.log"):
        create_topic(broker.bootstrap, f"{topic_name}.{name}", 1, cleanup_policy="delete")
        produce(broker.bootstrap, f"{topic_name}.{name}", [change(1, "ZA=="), change(2, "AMg="), change(1, "AJY=")])
    produce(broker.bootstrap, f"{topic_name}.public.orders", [change(2, None)])
    state = deployment.run_once(spark)
    assert state.topics.keys() == {f"{topic_name}.public.customers", f"{topic_name}.public.orders"}
    rows = {b'{"id":2}': b'{"id":2,"balance":2.00}', b'{"id":1}': b'{"id":1,"balance":1.50}'}
    for name, kept in (("customers", rows), ("orders", {**rows, b'{"id":2}': None})):
        records = consume_all(broker.bootstrap, f"{topic_name}.public.{name}.rows")
        assert {record.key: record.value for record in records} == kept


def test_a_backlog_that_spark_reads_goes_through_the_chain(
    spark: SparkSession, broker: EmbeddedKafka, tmp_path: Path, topic_name: str
) -> None:
    """Spark's tasks transform as the worker's own process does, and count what they drop."""
    deployment = example("entity-state", tmp_path, broker.bootstrap, topic_name)
    records = APART_IN_DRIVER_MAX + 2_000
    some = ((0, None, event(order_id=str(number % 500), n=number)) for number in range(records))
    dropped = [(0, None, event(order_id="1"), [("heartbeat", b"")], BASE_MS)] * 10
    produce(broker.bootstrap, deployment.topic, [*some, *dropped])
    state = deployment.run_once(spark)
    found = consume_all(broker.bootstrap, f"{topic_name}.shop.orders.state")
    assert {one.key: json.loads(one.value or b"")["n"] for one in found} == {
        str(number % 500).encode(): number for number in range(records - 500, records)
    }
    assert {log.position for log in state.logs} == {records + 10}


def test_a_registry_that_is_away_costs_no_record(
    spark: SparkSession, broker: EmbeddedKafka, tmp_path: Path, topic_name: str
) -> None:
    """The connector fails, to be started again; nothing is a dead letter, and nothing is taken in."""
    deployment = example("entity-state", tmp_path, broker.bootstrap, topic_name)
    deployment.settings = {
        name: text for name, text in deployment.settings.items() if not name.startswith("value.converter.")
    } | {"value.converter": "keyfold.Avro", "value.converter.schema.registry.url": f"http://127.0.0.1:{free_port()}"}
    produce(broker.bootstrap, deployment.topic, [(0, b"k", b"\x00\x00\x00\x00\x01\x02")])
    with pytest.raises(RegistryError, match="schema registry does not answer"):
        deployment.run_once(spark)
    assert {log.end for log in deployment.state().logs} == {0}
    assert consume_all(broker.bootstrap, f"{topic_name}.shop.events.dead") == []
