"""Deletes that are the bytes `null` delete, from the first run on, and for what an older connector kept as rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.cli import invoke
from tests.support.deployment import Deployment
from tests.support.kafka import consume_all, produce
from tests.support.records import read_snapshot

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PLAIN_JSON = {"value.converter": "JsonConverter", "value.converter.schemas.enable": "false"}


def latest(deployment: Deployment) -> dict[bytes | None, bytes | None]:
    """Returns the last value of each key in the output."""
    return {record.key: record.value for record in consume_all(deployment.bootstrap, deployment.output)}


def test_a_null_of_json_deletes(spark: SparkSession, deployment: Deployment) -> None:
    """In the output a tombstone, in no snapshot a row; rows that were kept before go with `keyfold resync`."""
    produce(deployment.bootstrap, deployment.topic, [(0, b"a", b'{"n":1}'), (0, b"b", b'{"n":2}'), (0, b"b", b"null")])
    deployment.run_once(spark)
    assert latest(deployment) == {b"a": b'{"n":1}', b"b": b"null"}

    deployment.settings |= PLAIN_JSON
    produce(deployment.bootstrap, deployment.topic, [(0, b"c", b'{"n":3}'), (0, b"c", b" null\n")])
    deployment.run_once(spark)
    assert latest(deployment) == {b"a": b'{"n":1}', b"b": b"null", b"c": None}

    connector, worker = deployment.write()
    assert invoke("resync", connector, "--worker", worker, "--json").exit_code == 0
    deployment.run_once(spark)
    assert latest(deployment) == {b"a": b'{"n":1}', b"b": None, b"c": None}
    assert {key: value for (_, key), (_, value) in read_snapshot(deployment)[1].items()} == {b"a": b'{"n":1}'}
