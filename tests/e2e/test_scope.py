"""One winner per key over all partitions of a topic, on a real broker (compaction.scope=topic)."""

from __future__ import annotations

import json
import random
import signal
from typing import TYPE_CHECKING

import pytest
from msgspec import UNSET

from compactor.catalog.commits import list_versions
from compactor.errors import CatalogError
from connectors.errors import OutputError
from tests.e2e.test_output_converters import PLAIN, WITH_SCHEMAS, with_schema
from tests.support.cli import invoke
from tests.support.deployment import Deployment
from tests.support.generations import time_text
from tests.support.kafka import Read, ToSend, add_partitions, consume_all, create_topic, produce
from tests.support.records import BASE_MS, read_snapshot

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Table = dict[bytes | None, bytes]


@pytest.fixture
def deployment(deployment: Deployment) -> Deployment:
    """The folder's own, with one winner per key over its topic."""
    deployment.settings |= {"compaction.scope": "topic", "min.cleanable.dirty.ratio": 1}
    return deployment


def changes(seed: int, count: int, partitions: int, first_ms: int, *, quoted: bool = False) -> list[ToSend]:
    """Returns changes of few keys, each in a random partition, with times that rise and sometimes fall.

    `quoted`: the keys are JSON.
    """
    chance = random.Random(seed)
    return [
        ToSend(
            chance.randrange(partitions),
            (f'"key-{chance.randrange(30)}"' if quoted else f"key-{chance.randrange(30)}").encode(),
            None if chance.random() < 0.2 else f"{seed}-{number}".encode(),
            (),
            first_ms + 10 * number - chance.choice((0, 0, 0, 95)),
        )
        for number in range(count)
    ]


def winners(deployment: Deployment, since_ms: int = 0) -> Table:
    """Returns the value of each key by its record with the highest time, partition and offset in the source."""
    best: dict[bytes | None, Read] = {}
    for record in consume_all(deployment.bootstrap, deployment.topic):
        if record.timestamp_ms < since_ms:
            continue
        known = best.get(record.key)
        if known is None or _rank(record) > _rank(known):
            best[record.key] = record
    return {key: record.value for key, record in best.items() if record.value is not None}


def _rank(record: Read) -> tuple[int, int, int]:
    return record.timestamp_ms, record.partition, record.offset


def table(records: list[Read]) -> Table:
    """Returns what a reader has that takes the last record of each key."""
    last = {record.key: record.value for record in records}
    return {key: value for key, value in last.items() if value is not None}


def tables(deployment: Deployment, topic: str) -> list[Table]:
    """Returns what a reader has of each partition of a topic that takes the last record of each key there."""
    records = consume_all(deployment.bootstrap, topic)
    return [table([each for each in records if each.partition == number]) for number in range(3)]


def broken(deployment: Deployment) -> list[str]:
    """Returns what is wrong with the output: records that came twice, in the wrong order, or to another partition."""
    wrong: list[str] = []
    newest: dict[tuple[int, bytes | None], int] = {}
    seen: set[tuple[bytes | None, bytes | None]] = set()
    places: dict[bytes | None, set[int]] = {}
    for record in consume_all(deployment.bootstrap, deployment.output):
        headers = dict(record.headers)
        source, offset = headers["keyfold.source.partition"], headers["keyfold.source.offset"]
        if (source, offset) in seen:
            wrong.append(f"{record} came twice")
        seen.add((source, offset))
        if newest.get((record.partition, source), -1) >= int(offset or b""):
            wrong.append(f"{record} comes after {newest[record.partition, source]}")
        newest[record.partition, source] = int(offset or b"")
        places.setdefault(record.key, set()).add(record.partition)
    return wrong + [f"{key!r} is in {found}" for key, found in places.items() if len(found) > 1]


def partitions_by_java(deployment: Deployment) -> dict[bytes | None, int]:
    """Returns the partition of each key, as librdkafka's partitioner chooses that is compatible with Java's."""
    name = create_topic(deployment.bootstrap, f"{deployment.topic}.keys", 2)
    keys = {record.key for record in consume_all(deployment.bootstrap, deployment.topic)}
    produce(deployment.bootstrap, name, [ToSend(-1, key, b"") for key in keys], partitioner="murmur2")
    return {record.key: record.partition for record in consume_all(deployment.bootstrap, name)}


def test_one_winner_over_partitions_that_become_more(spark: SparkSession, deployment: Deployment) -> None:
    """A key's record goes to the partition of Kafka's default partitioner, also once the source has more partitions."""
    produce(deployment.bootstrap, deployment.topic, changes(1, 200, 2, BASE_MS))
    deployment.run_once(spark)
    assert table(consume_all(deployment.bootstrap, deployment.output)) == winners(deployment)
    add_partitions(deployment.bootstrap, deployment.topic, 3)
    produce(deployment.bootstrap, deployment.topic, changes(2, 200, 3, BASE_MS + 1_000))
    state = deployment.run_once(spark)
    records = consume_all(deployment.bootstrap, deployment.output)
    assert table(records) == winners(deployment)
    assert broken(deployment) == []
    by_java = partitions_by_java(deployment)
    assert {record.key: record.partition for record in records} == {
        record.key: by_java[record.key] for record in records
    }
    assert state.topics[deployment.topic].outputs == 2
    assert {log.bucket for log in state.logs} == {state.logs[0].bucket}
    manifest, rows = read_snapshot(deployment)
    assert {key: value for (_, key), (_, value) in rows.items()} == winners(deployment)
    assert (manifest["scope"], manifest["output_offsets"].keys()) == ("topic", {"0", "1"})
    connector, worker = map(str, deployment.write())
    for key, value in list(winners(deployment).items())[:3]:
        got = invoke("get", connector, (key or b"").decode(), "--worker", worker, "--text")
        (line,) = got.stdout.splitlines()
        assert json.loads(line)["value"] == value.decode()


@pytest.mark.parametrize(
    "step",
    [
        "publish.offsets",
        *(pytest.param(step, marks=pytest.mark.long) for step in ("publish.plan", "publish.late", "publish.committed")),
    ],
)
def test_killed_while_it_publishes(spark: SparkSession, deployment: Deployment, step: str) -> None:
    """What was planned keeps its end, and what was passed over has its winner sent."""
    deployment.publishing_only()
    produce(deployment.bootstrap, deployment.topic, changes(3, 150, 2, BASE_MS))
    deployment.run_once(spark)
    produce(deployment.bootstrap, deployment.topic, changes(4, 150, 2, BASE_MS + 700))
    with deployment.process("--once", failpoints=f"{step}=sleep:600000") as worker:
        worker.until_logged(f"failpoint {step}")
        worker.signal_all(signal.SIGKILL)
        worker.wait()
    produce(deployment.bootstrap, deployment.topic, changes(5, 50, 2, BASE_MS + 1_500))
    deployment.run_once(spark)
    assert table(consume_all(deployment.bootstrap, deployment.output)) == winners(deployment)
    assert broken(deployment) == []


def test_read_again_as_a_whole(spark: SparkSession, deployment: Deployment) -> None:
    """A generation of all partitions, and none of one alone; keys that are gone from the source get tombstones."""
    produce(deployment.bootstrap, deployment.topic, changes(6, 100, 2, BASE_MS))
    deployment.run_once(spark)
    connector, worker = deployment.write()
    alone = invoke("resync", str(connector), "--worker", str(worker), "--partition", "0", "--topic", deployment.topic)
    assert alone.exit_code != 0
    assert "all partitions of a topic begin again together" in " ".join(alone.output.split())
    done = invoke("resync", str(connector), "--worker", str(worker))
    assert done.exit_code == 0, done.output
    deployment.run_once(spark)
    assert table(consume_all(deployment.bootstrap, deployment.output)) == winners(deployment)


@pytest.mark.long
def test_keys_without_a_record_since_a_time_end(spark: SparkSession, deployment: Deployment) -> None:
    """What retention cannot do with one winner over a topic: the source is read again from that time on."""
    produce(deployment.bootstrap, deployment.topic, changes(16, 100, 2, BASE_MS))
    deployment.run_once(spark)
    produce(deployment.bootstrap, deployment.topic, changes(17, 30, 2, BASE_MS + 100_000))
    connector, worker = deployment.write()
    since = time_text(BASE_MS + 50_000)
    done = invoke("resync", str(connector), "--worker", str(worker), "--since", since)
    assert done.exit_code == 0, done.output
    deployment.run_once(spark)
    living = winners(deployment, BASE_MS + 50_000)
    assert table(consume_all(deployment.bootstrap, deployment.output)) == living != winners(deployment)
    assert {key: value for (_, key), (_, value) in read_snapshot(deployment)[1].items()} == living


@pytest.mark.parametrize("identity", ["bytes", pytest.param("json", marks=pytest.mark.long)])
def test_a_lost_catalog_is_made_again_from_the_output(
    spark: SparkSession, deployment: Deployment, identity: str
) -> None:
    """Of each log what of it had won; the winners stay, and later records go on from them."""
    if identity == "json":
        deployment.settings |= {"compaction.key.identity": "json", "key.converter": "keyfold.Json"}
    place = deployment.settings["snapshot.location"]
    produce(deployment.bootstrap, deployment.topic, changes(10, 200, 2, BASE_MS, quoted=identity == "json"))
    deployment.run_once(spark, snapshot_location="none")
    add_partitions(deployment.bootstrap, deployment.topic, 3)
    produce(deployment.bootstrap, deployment.topic, changes(11, 100, 3, BASE_MS + 1_500, quoted=identity == "json"))
    deployment.run_once(spark, snapshot_location="none")
    before = winners(deployment)
    deployment.storage.delete_folder("")
    produce(deployment.bootstrap, deployment.topic, changes(12, 40, 3, BASE_MS + 1_900, quoted=identity == "json"))
    files = (str(deployment.write(compaction_scope="partition")[0]), "--worker", str(deployment.write()[1]))
    refused = invoke("rebuild", *files)
    assert "was published with compaction.scope=topic, and it is partition now" in " ".join(refused.output.split())
    assert (refused.exit_code, list_versions(deployment.storage).commits) == (2, ())
    deployment.write(compaction_scope="topic")
    done = invoke("rebuild", *files, "--json")
    assert done.exit_code == 0, done.output
    assert sum(each["records"] for each in json.loads(done.stdout)) >= len(before)
    state = deployment.run_once(spark, snapshot_location=place)
    assert table(consume_all(deployment.bootstrap, deployment.output)) == winners(deployment)
    assert broken(deployment) == []
    assert (state.scope, state.topics[deployment.topic].outputs) == ("topic", 2)
    assert {log.bucket for log in state.logs} == {state.logs[0].bucket}
    _, rows = read_snapshot(deployment)
    assert {key: value for (_, key), (_, value) in rows.items()} == winners(deployment)
    produce(deployment.bootstrap, deployment.topic, changes(13, 60, 3, BASE_MS + 2_000, quoted=identity == "json"))
    deployment.run_once(spark)
    assert table(consume_all(deployment.bootstrap, deployment.output)) == winners(deployment)
    assert broken(deployment) == []


def test_a_resync_applies_another_scope(
    spark: SparkSession, deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keys move to the output partitions of the other scope, and leave none behind, also if it is killed after G3."""
    source, output = deployment.topic, deployment.output
    produce(deployment.bootstrap, source, changes(8, 120, 2, BASE_MS))
    deployment.run_once(spark, compaction_scope="partition")
    assert tables(deployment, output) == tables(deployment, source)
    files = (str(deployment.write(compaction_scope="topic")[0]), "--worker", str(deployment.write()[1]))
    with pytest.raises(CatalogError, match=r"compaction\.scope was partition .* is topic now") as refused:
        deployment.run_once(spark)
    assert "keyfold resync" in refused.value.action
    assert invoke("resync", *files).exit_code == 0
    state = deployment.run_once(spark)
    placed = [dict.fromkeys(each, number) for number, each in enumerate(tables(deployment, output))]
    by_java, best = partitions_by_java(deployment), winners(deployment)
    assert placed == [{key: number for key in best if by_java[key] == number} for number in range(3)]
    assert {key: value for each in tables(deployment, output) for key, value in each.items()} == best
    assert (state.scope, state.topics[source].outputs) == ("topic", 2)
    add_partitions(deployment.bootstrap, source, 3)
    produce(deployment.bootstrap, source, changes(9, 60, 3, BASE_MS + 2_000))
    deployment.run_once(spark)
    deployment.write(compaction_scope="partition")
    small = invoke("resync", *files)
    assert small.exit_code != 0
    assert "it may have no fewer than 3" in " ".join(small.output.split())
    add_partitions(deployment.bootstrap, output, 3)
    monkeypatch.setenv("KEYFOLD_FAILPOINTS", "generation.after-commit=error")
    assert invoke("resync", *files).exit_code != 0
    monkeypatch.delenv("KEYFOLD_FAILPOINTS")
    state = deployment.run_once(spark)
    assert tables(deployment, output) == tables(deployment, source)
    assert (state.scope, state.topics[source].outputs) == ("partition", UNSET)


def test_scope_and_output_partitions_stay(spark: SparkSession, deployment: Deployment) -> None:
    """Another scope is refused, and so is an output with more partitions: keys would go to others."""
    produce(deployment.bootstrap, deployment.topic, changes(7, 10, 2, BASE_MS))
    deployment.run_once(spark)
    with pytest.raises(CatalogError, match=r"compaction\.scope was topic so far and is partition now"):
        deployment.run_once(spark, compaction_scope="partition")
    add_partitions(deployment.bootstrap, deployment.output, 3)
    with pytest.raises(OutputError, match="has 3 partitions, and had 2 at the connector's first start"):
        deployment.run_once(spark, compaction_scope="topic")


def test_a_row_stays_one_if_its_key_gets_another_type(spark: SparkSession, deployment: Deployment) -> None:
    """Its bytes and its partition change with the schema in the key; written without that it is the same key."""
    deployment.settings |= {**WITH_SCHEMAS, **PLAIN}

    def change(partition: int, kind: str, name: str | None) -> ToSend:
        value = None if name is None else with_schema("name", "string", name)
        ms[0] += 10
        return ToSend(partition, with_schema("id", kind, number), value, (), ms[0])

    ms = [BASE_MS]
    number = 1
    sent = [change(0, "int32", "ann"), change(1, "int64", "anna")]
    number = 2
    sent += [change(0, "int32", "bea"), change(1, "int64", None)]
    number = 3
    produce(deployment.bootstrap, deployment.topic, [*sent, change(0, "int32", "cid")])
    deployment.run_once(spark)
    rows = {b'{"id":1}': b'{"name":"anna"}', b'{"id":3}': b'{"name":"cid"}'}
    assert table(consume_all(deployment.bootstrap, deployment.output)) == rows
    number = 3
    produce(deployment.bootstrap, deployment.topic, [change(1, "int64", "cyd")])
    deployment.run_once(spark)
    rows[b'{"id":3}'] = b'{"name":"cyd"}'
    assert table(consume_all(deployment.bootstrap, deployment.output)) == rows
    assert {key: value for (_, key), (_, value) in read_snapshot(deployment)[1].items()} == rows
    assert broken(deployment) == []
