"""Keys that mean the same are one key on a real broker, whatever bytes they came with."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterable
from typing import TYPE_CHECKING

import pytest

from compactor.errors import CatalogError
from tests.support.cli import invoke
from tests.support.deployment import Deployment
from tests.support.generations import live
from tests.support.kafka import Read, consume_all, produce
from tests.support.records import read_snapshot

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SPACED = {number: b'{"id": %d, "shop": "a"}' % number for number in range(4)}
SORTED = {number: b'{"shop":"a","id":%d.0}' % number for number in range(4)}


@pytest.fixture
def deployment(deployment: Deployment) -> Deployment:
    """The folder's own, whose keys are JSON."""
    deployment.settings |= {"compaction.key.identity": "json", "min.cleanable.dirty.ratio": 1}
    return deployment


def put(deployment: Deployment, *records: tuple[bytes, bytes | None]) -> None:
    """Produces into partition 0."""
    produce(deployment.bootstrap, deployment.topic, [(0, *one) for one in records])


def table(deployment: Deployment) -> dict[bytes | None, bytes | None]:
    """Returns what a reader of the output that compares bytes has at its end."""
    return {key: value for (_, key), value in live(read(deployment)).items()}


def read(deployment: Deployment) -> list[Read]:
    return consume_all(deployment.bootstrap, deployment.output)


def shown(records: Iterable[Read]) -> list[tuple[bytes | None, bytes | None, bytes | None]]:
    """Returns key, value and what is said of records that no source has."""
    return [(one.key, one.value, dict(one.headers).get("keyfold.synthetic")) for one in records]


@pytest.mark.parametrize(
    "local",
    [
        pytest.param(100_000, id="this process"),
        pytest.param(-1, id="Spark's tasks", marks=pytest.mark.long),  # spark/test_publish.py retires encodings there
    ],
)
def test_one_live_record_for_each_key_whatever_its_bytes(
    spark: SparkSession, deployment: Deployment, local: int
) -> None:
    """The other bytes go directly before the record, once; a key that is deleted in other bytes is gone."""
    deployment.write(publish_local_max_records=local)
    put(deployment, (SPACED[0], b"a"), (SPACED[1], b"b"), (SPACED[2], b"c"), (SORTED[0], b"d"))
    deployment.run_once(spark)
    put(deployment, (SORTED[1], b"e"), (SORTED[2], None), (SORTED[0], b"f"), (SPACED[3], b"g"))
    deployment.run_once(spark)
    assert shown(read(deployment)) == [
        (SPACED[1], b"b", None),
        (SPACED[2], b"c", None),
        (SORTED[0], b"d", None),
        (SPACED[1], None, b"identity"),
        (SORTED[1], b"e", None),
        (SPACED[2], None, b"identity"),
        (SORTED[2], None, None),
        (SORTED[0], b"f", None),
        (SPACED[3], b"g", None),
    ]
    assert table(deployment) == {SORTED[1]: b"e", SORTED[0]: b"f", SPACED[3]: b"g"}
    manifest, rows = read_snapshot(deployment)
    assert manifest["key_identity"] == "json"
    assert {key: value for (_, key), (_, value) in rows.items()} == table(deployment)
    synthetic = dict(read(deployment)[3].headers)
    assert synthetic.keys() == {"keyfold.source.topic", "keyfold.source.partition", "keyfold.synthetic"}
    assert read(deployment)[3].timestamp_ms == read(deployment)[4].timestamp_ms


@pytest.mark.long
def test_killed_between_tombstone_and_record(spark: SparkSession, deployment: Deployment) -> None:
    """No reader sees the one without the other, and the next worker sends both."""
    deployment.publishing_only()
    put(deployment, (SPACED[0], b"a"), (SPACED[1], b"b"))
    deployment.run_once(spark)
    put(deployment, (SORTED[0], b"c"), (SORTED[1], b"d"))
    with deployment.process("--once", failpoints="publish.retired@2=sleep:600000") as worker:
        worker.until_logged("failpoint publish.retired")
        worker.signal_all(signal.SIGKILL)
        worker.wait()
    assert table(deployment) == {SPACED[0]: b"a", SPACED[1]: b"b"}
    deployment.run_once(spark)
    assert shown(read(deployment))[2:] == [
        (SPACED[0], None, b"identity"),
        (SORTED[0], b"c", None),
        (SPACED[1], None, b"identity"),
        (SORTED[1], b"d", None),
    ]


def test_a_key_that_is_no_json_is_a_dead_letter(spark: SparkSession, deployment: Deployment) -> None:
    """It alone."""
    dead = f"{deployment.topic}.dead"
    deployment.write(
        errors_tolerance="all",
        errors_deadletterqueue_topic_name=dead,
        errors_deadletterqueue_context_headers_enable="true",
    )
    put(deployment, (SPACED[0], b"a"), (b"{", b"b"), (SORTED[0], b"c"))
    deployment.run_once(spark)
    assert table(deployment) == {SORTED[0]: b"c"}
    (letter,) = consume_all(deployment.bootstrap, dead)
    headers = dict(letter.headers)
    assert (letter.key, headers["__connect.errors.stage"]) == (b"{", b"KEY_CONVERTER")
    assert headers["__connect.errors.class.name"] == b"keyfold.JsonKeyIdentity"


def test_the_identity_stays_what_it_was_at_the_first_start(spark: SparkSession, deployment: Deployment) -> None:
    """Another one is an error that names it and the way, and nothing has changed."""
    put(deployment, (SPACED[0], b"a"))
    deployment.run_once(spark)
    with pytest.raises(CatalogError, match="identity was json so far and is bytes now") as refused:
        deployment.run_once(spark, compaction_key_identity="bytes")
    assert "keyfold resync" in refused.value.action
    put(deployment, (SORTED[0], b"b"))
    deployment.run_once(spark, compaction_key_identity="json")
    assert table(deployment) == {SORTED[0]: b"b"}


def test_a_resync_applies_another_identity(
    spark: SparkSession, deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From bytes, of which the output has several spellings, and back to them, also if it is killed after G3."""
    by_bytes = {SPACED[0]: b"a", SORTED[0]: b"b", SORTED[1]: b"c", SPACED[2]: b"e"}
    put(deployment, (SPACED[0], b"a"), (SORTED[0], b"b"), (SORTED[1], b"c"), (SORTED[2], b"d"), (SORTED[2], None))
    put(deployment, (SPACED[2], b"e"))
    deployment.run_once(spark, compaction_key_identity="bytes")
    assert table(deployment) == by_bytes
    files = (str(deployment.write(compaction_key_identity="json")[0]), "--worker", str(deployment.write()[1]))
    partly = invoke("resync", *files, "--topic", deployment.topic, "--partition", "0")
    assert "would keep what it has by the key identity before" in " ".join(partly.stderr.split())
    assert invoke("resync", *files).exit_code == 0
    assert invoke("get", *files, SPACED[0].decode()).exit_code == 0
    state = deployment.run_once(spark)
    assert (state.identity, table(deployment)) == ("json", {SORTED[0]: b"b", SORTED[1]: b"c", SPACED[2]: b"e"})
    manifest, rows = read_snapshot(deployment)
    assert manifest["key_identity"] == "json"
    assert {key: value for (_, key), (_, value) in rows.items()} == table(deployment)
    deployment.write(compaction_key_identity="bytes")
    monkeypatch.setenv("KEYFOLD_FAILPOINTS", "generation.after-commit=error")
    assert invoke("resync", *files).exit_code != 0
    monkeypatch.delenv("KEYFOLD_FAILPOINTS")
    state = deployment.run_once(spark)
    assert (state.key_identity, table(deployment)) == (None, by_bytes)
    assert "key_identity" not in read_snapshot(deployment)[0]


@pytest.mark.long  # test_a_resync_applies_another_identity reads one anew
def test_a_log_that_is_read_anew_leaves_one_encoding(spark: SparkSession, deployment: Deployment) -> None:
    """Of what the output had before too."""
    put(deployment, (SPACED[0], b"a"), (SPACED[1], b"b"))
    deployment.run_once(spark)
    put(deployment, (SORTED[0], b"c"))
    connector, worker = deployment.write()
    result = invoke("resync", connector, "--worker", worker)
    assert result.exit_code == 0, result.output
    deployment.run_once(spark)
    assert table(deployment) == {SORTED[0]: b"c", SPACED[1]: b"b"}


def test_a_rebuilt_log_knows_the_keys_of_its_output(spark: SparkSession, deployment: Deployment) -> None:
    """Their identities are found again."""
    deployment.publishing_only()
    put(deployment, (SPACED[0], b"a"), (SPACED[1], b"b"))
    deployment.run_once(spark)
    put(deployment, (SORTED[0], b"c"))
    deployment.run_once(spark)
    deployment.storage.delete_folder("")
    connector, worker = deployment.write()
    result = invoke("rebuild", connector, "--worker", worker, "--json")
    assert result.exit_code == 0, result.output
    records = sum(one["records"] for one in json.loads(result.stdout))
    assert records == 2, "the key that an identity's tombstone retired is no part of the table"
    put(deployment, (SORTED[1], b"d"), (SPACED[0], b"e"))
    deployment.run_once(spark)
    assert table(deployment) == {SORTED[1]: b"d", SPACED[0]: b"e"}
