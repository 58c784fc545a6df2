"""A topic in one form becomes an output in another, on a real broker."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any, Final

from tests.support.cli import invoke
from tests.support.deployment import Deployment
from tests.support.generations import live
from tests.support.kafka import consume_all, produce
from tests.support.records import read_snapshot

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WITH_SCHEMAS: Final = {"key.converter": "keyfold.Json", "value.converter": "keyfold.Json"}
PLAIN: Final = {
    "output.key.converter": "keyfold.Json",
    "output.key.converter.schemas.enable": "false",
    "output.value.converter": "keyfold.Json",
    "output.value.converter.schemas.enable": "false",
}


def with_schema(name: str, kind: str, content: Any) -> bytes:
    """Returns a struct of one field as JsonConverter writes it with its schema."""
    schema = {"type": "struct", "fields": [{"field": name, "type": kind}]}
    return json.dumps({"schema": schema, "payload": {name: content}}).encode()


def key(number: int) -> bytes:
    return with_schema("id", "int32", number)


def row(name: str) -> bytes:
    return with_schema("name", "string", name)


def table(deployment: Deployment) -> dict[bytes | None, bytes | None]:
    """Returns what a reader of the output has at its end, by key."""
    return {at: value for (_, at), value in live(consume_all(deployment.bootstrap, deployment.output)).items()}


def kept(deployment: Deployment) -> dict[bytes | None, bytes]:
    """Returns what the newest snapshot has, by key."""
    return {at: value for (_, at), (_, value) in read_snapshot(deployment)[1].items()}


def test_the_output_has_its_own_form_and_resync_gives_it_to_old_records(
    spark: SparkSession, deployment: Deployment
) -> None:
    """Output, snapshot and `get` agree; after a change of the form a record keeps the one that it was kept in."""
    deployment.settings |= {**WITH_SCHEMAS, **PLAIN, "min.cleanable.dirty.ratio": 1}
    produce(
        deployment.bootstrap,
        deployment.topic,
        [(0, key(1), row("ann")), (0, key(2), row("bea")), (0, key(3), row("cid")), (0, key(3), None)],
    )
    deployment.run_once(spark)
    plain = {b'{"id":1}': b'{"name":"ann"}', b'{"id":2}': b'{"name":"bea"}'}
    assert table(deployment) == kept(deployment) == plain
    connector, worker = deployment.write()
    answer = invoke("get", connector, '{"id":1}', "--worker", worker, "--json")
    assert base64.b64decode(json.loads(answer.stdout)["value"]) == b'{"name":"ann"}'

    for name in PLAIN:
        del deployment.settings[name]
    of_key = {"transforms": "id", "transforms.id.type": "ExtractField$Key", "transforms.id.field": "id"}
    deployment.settings |= {**of_key, "output.key.converter": "keyfold.Integer"}
    produce(deployment.bootstrap, deployment.topic, [(0, key(1), row("anna"))])
    deployment.run_once(spark)
    assert table(deployment) == kept(deployment) == {**plain, b"\0\0\0\1": row("anna")}

    connector, worker = deployment.write()
    assert invoke("resync", connector, "--worker", worker).exit_code == 0
    deployment.run_once(spark)
    assert table(deployment) == kept(deployment) == {b"\0\0\0\1": row("anna"), b"\0\0\0\2": row("bea")}
