"""`keyfold restore`: a snapshot's records go to a topic as they are, each exactly once, whatever ends a run."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from connectors.dev.embedded_kafka import EmbeddedKafka
from tests.support.cli import execute, invoke, worker_file, write_json
from tests.support.deployment import Deployment
from tests.support.engine import row
from tests.support.kafka import ToSend, consume_all, create_topic, produce
from tests.support.kept_snapshots import KeptSnapshots
from tests.support.snapshot_recipes import PAGE, snapshots
from tests.support.typed_snapshots import TypedConnector

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Restored = tuple[Any, ...]
LARGE = 25_000


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> KeptSnapshots:
    """A snapshot of two partitions: text and bytes, headers that repeat, an empty value, times of long ago."""
    made = KeptSnapshots(tmp_path_factory.mktemp("kept"), partitions=2)
    headers = [{"key": "h", "value": b"\xff"}, {"key": "h", "value": None}, {"key": "", "value": b""}]
    rows = [row(number % 2, number // 2, b"k%d" % number, b"%d" % number, timestamp=number + 1) for number in range(50)]
    rows += [row(0, 25, b"\xff", b"", headers=headers, timestamp=4_102_444_800_000), row(1, 25, b"k1", None)]
    made.keep(rows)
    return made


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> KeptSnapshots:
    """A snapshot of more records than go into two transactions."""
    made = KeptSnapshots(tmp_path_factory.mktemp("large"))
    made.keep([row(0, number, b"k%d" % number, b"%d" % number, timestamp=number + 1) for number in range(LARGE)])
    return made


@pytest.fixture
def target(tmp_path: Path, broker: EmbeddedKafka, topic_name: str) -> tuple[str, Path]:
    """A topic that is not there yet, and a worker file of its cluster."""
    return topic_name, worker_file(tmp_path, broker.bootstrap)


def _expected() -> list[Restored]:
    plain: list[Restored] = [(n % 2, b"k%d" % n, b"%d" % n, n + 1, []) for n in range(50) if n != 1]
    odd = (0, b"\xff", b"", 4_102_444_800_000, [("h", b"\xff"), ("h", None), ("", b"")])
    return sorted([*plain, odd], key=lambda each: each[:2])


def _there(bootstrap: str, topic: str) -> list[Restored]:
    read = consume_all(bootstrap, topic)
    made = [(each.partition, each.key, each.value, each.timestamp_ms, list(each.headers)) for each in read]
    return sorted(made, key=lambda each: each[:2])


def test_each_record_is_as_it_was(broker: EmbeddedKafka, kept: KeptSnapshots, target: tuple[str, Path]) -> None:
    """Key, value, headers, time and partition, in a topic that is made as an output is; once, however often it runs."""
    topic, worker = target
    words = ("restore", kept.topic, "--topic", topic, "--worker", worker, "--json")
    missing = invoke(*words)
    assert (missing.exit_code, "--create" in missing.stderr) == (2, True)
    first = json.loads(invoke(*words, "--create", "--config", "segment.bytes=1048576").stdout)
    assert (first["created"], first["records"], first["sent"], first["before"]) == (True, 50, 50, 0)
    assert _there(broker.bootstrap, topic) == _expected()
    again = json.loads(invoke(*words).stdout)
    assert (again["created"], again["sent"], again["before"]) == (False, 0, 50)
    assert "already" in invoke(*words[:-1]).stdout
    assert _there(broker.bootstrap, topic) == _expected()


@pytest.mark.parametrize(
    "failpoint",
    [
        "restore.offsets",
        pytest.param("restore.sent", marks=pytest.mark.long),
        pytest.param("restore.committed", marks=pytest.mark.long),
    ],
)
def test_a_run_that_is_killed_is_gone_on_with(
    broker: EmbeddedKafka, large: KeptSnapshots, target: tuple[str, Path], failpoint: str
) -> None:
    """At each step, of the first transaction and of a later one: no record is there twice, none is missing."""
    topic, worker = target
    create_topic(broker.bootstrap, topic, 2)
    words = ("restore", large.topic, "--topic", topic, "--worker", worker)
    for nth in (1, 2 if failpoint == "restore.committed" else 3):
        assert execute(*words, KEYFOLD_FAILPOINTS=f"{failpoint}@{nth}=kill").returncode < 0
    part = len(_there(broker.bootstrap, topic))
    assert 0 < part < LARGE
    done = invoke(*words, "--json")
    assert done.exit_code == 0, done.stderr
    assert (json.loads(done.stdout)["before"], json.loads(done.stdout)["sent"]) == (part, LARGE - part)
    assert _there(broker.bootstrap, topic) == sorted((0, b"k%d" % n, b"%d" % n, n + 1, []) for n in range(LARGE))


@pytest.mark.long
def test_a_run_is_gone_on_with_though_newer_snapshots_are_taken(
    broker: EmbeddedKafka, tmp_path: Path, target: tuple[str, Path]
) -> None:
    """A topic's folder stands for the snapshot that was begun, which retention leaves; another one is refused."""
    topic, worker = target
    count = 12_000
    kept = KeptSnapshots(tmp_path / "kept", snapshot_retention_count=1)
    first = kept.keep(
        [row(0, number, b"k%d" % number, b"%d" % number, timestamp=number + 1) for number in range(count)]
    )
    create_topic(broker.bootstrap, topic, 1)
    words = ("--topic", topic, "--worker", worker)
    assert execute("restore", kept.topic, *words, KEYFOLD_FAILPOINTS="restore.committed@2=kill").returncode < 0
    second = kept.keep([row(0, count, b"k0", b"new")])
    assert kept.ids == [first, second]
    other = invoke("restore", kept.topic / second, *words)
    assert (other.exit_code, f"keyfold restore {kept.topic / first}" in other.stderr) == (2, True), other.stderr
    done = invoke("restore", kept.topic, *words, "--json")
    assert done.exit_code == 0, done.stderr
    assert (json.loads(done.stdout)["before"], json.loads(done.stdout)["sent"]) == (10_000, 2_000)
    assert _there(broker.bootstrap, topic) == sorted((0, b"k%d" % n, b"%d" % n, n + 1, []) for n in range(count))
    third = kept.keep([row(0, count + 1, b"k1", b"new")])
    assert kept.ids == [third]
    assert "already" in invoke("restore", kept.topic, *words).stdout
    assert invoke("restore", kept.topic / third, *words).exit_code == 2


@pytest.mark.parametrize(
    ("partitions", "config", "said"),
    [
        (1, {}, "has 1 partitions, the snapshot has records of 2"),
        (2, {"message_timestamp_type": "LogAppendTime"}, "message.timestamp.type=LogAppendTime"),
    ],
)
def test_a_topic_that_does_not_fit_is_refused(
    broker: EmbeddedKafka, kept: KeptSnapshots, target: tuple[str, Path], partitions: int, config: Any, said: str
) -> None:
    """Before anything is sent: exit code 2, and what to change."""
    topic, worker = target
    create_topic(broker.bootstrap, topic, partitions, **config)
    result = invoke("restore", kept.topic, "--topic", topic, "--worker", worker)
    assert (result.exit_code, said in result.stderr) == (2, True), result.stderr
    assert _there(broker.bootstrap, topic) == []


def test_a_topic_with_records_is_refused(broker: EmbeddedKafka, kept: KeptSnapshots, target: tuple[str, Path]) -> None:
    """Some may be of an earlier restore: brokers forget how far one has come."""
    topic, worker = target
    create_topic(broker.bootstrap, topic, 2)
    produce(broker.bootstrap, topic, [(0, b"k", b"v")])
    result = invoke("restore", kept.topic, "--topic", topic, "--worker", worker)
    assert (result.exit_code, "Restore into a new topic" in result.stderr) == (2, True), result.stderr


def test_what_a_snapshot_lacks_is_said_before_a_broker_is_asked(tmp_path: Path) -> None:
    """Unknown times, a missing column, an older manifest: exit code 2, and the way out."""
    timeless = KeptSnapshots(tmp_path / "timeless")
    odd = timeless.keep([row(0, 0, b"a", b"1", timestamp=1 << 62)])
    older = _typed(tmp_path / "older", [row(0, 0, b"{}", b"{}")])
    said = older / "_manifest.json"
    said.write_text(said.read_text().replace('"converters"', '"others"'))
    cases = {
        timeless.topic / odd: "times that no snapshot",
        _typed(
            tmp_path / "keyless", [row(0, 0, b"{}", b"{}")], metadata=["_partition", "_timestamp"]
        ): "no column _key",
        older: "--with key.converter=",
    }
    for folder, text in cases.items():
        result = invoke("restore", folder, "--topic", "t", "--worker", worker_file(tmp_path))
        assert (result.exit_code, text in result.stderr) == (2, True), result.stderr


TYPED = {"key.converter": "keyfold.Json", "key.converter.schemas.enable": "false"}
TYPED |= {name.replace("key", "value"): text for name, text in TYPED.items()}

TYPED_COLUMNS = {**TYPED, "snapshot.key.format": "typed", "snapshot.value.format": "typed"}


def _typed(folder: Path, rows: list[Any], by: str = "", **more: Any) -> Path:
    """Takes a typed snapshot of plain JSON, with partitions `by`; returns its folder."""
    connector = TypedConnector(folder, TYPED, key=True, **more)
    if by:
        connector.set(TYPED, partitions=by)
    connector.fold(rows)
    return next(path for path in connector.take().files[0].parents if path.name == "data").parent


@pytest.mark.parametrize("by", ["", "n, day(_timestamp)"])
def test_typed_columns_are_records_again(
    broker: EmbeddedKafka, tmp_path: Path, target: tuple[str, Path], by: str
) -> None:
    """By the converters that the manifest names; what fitted no column, headers and times are as they were."""
    topic, worker = target
    headers = [{"key": "h", "value": b"1"}]
    rows = [row(0, n, b'{"id":%d}' % n, b'{"n":%d,"t":"x"}' % n, timestamp=n + 1) for n in range(6)]
    rows += [row(0, 6, b'{"id":9}', b"{", headers=headers, timestamp=9), row(0, 7, b"\xff", b'{"n":7}', timestamp=9)]
    folder = _typed(tmp_path / "typed", rows, by)
    words = ("restore", folder.parent, "--topic", topic, "--worker", worker, "--create", "--json")
    done = invoke(*words)
    assert done.exit_code == 0, done.stderr
    expected = [
        (
            each["partition"],
            each["key"],
            each["value"],
            each["timestamp"],
            [(h["key"], h["value"]) for h in each["headers"] or ()],
        )
        for each in rows
    ]
    assert sorted(_there(broker.bootstrap, topic), key=repr) == sorted(expected, key=repr)
    assert json.loads(invoke(*words).stdout)["before"] == 8


def test_the_commands_of_the_page(
    broker: EmbeddedKafka, tmp_path: Path, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """docs/snapshots.md: each restore is called as it stands there, but for the name of its topic."""
    snapshots(tmp_path)
    typed = _typed(
        tmp_path / "typed", [row(0, n, b'{"id":%d}' % n, b'{"n":%d}' % n, timestamp=n + 1) for n in range(3)]
    )
    (tmp_path / "snapshots" / "orders").mkdir()
    typed.parent.rename(tmp_path / "snapshots" / "orders" / "orders")
    worker_file(tmp_path, broker.bootstrap)
    orders = {"name": "orders", "connector.class": "keyfold.CompactedTopic", "topics": "orders"}
    write_json(tmp_path / "orders.json", {**orders, **TYPED, "snapshot.location": "snapshots"})
    monkeypatch.chdir(tmp_path)
    shown = re.findall(r"(?m)^    keyfold (restore [^#\n]*)$", PAGE.read_text(encoding="utf-8"))
    for line, records in zip(shown, (2, 3), strict=True):
        result = invoke(*line.replace(" --topic ", f" --topic {topic_name}.").split(), "--json")
        assert (result.exit_code, json.loads(result.stdout or "{}").get("sent")) == (0, records), result.output


@pytest.mark.long
def test_a_restore_does_not_go_on_with_other_converters(
    broker: EmbeddedKafka, tmp_path: Path, target: tuple[str, Path]
) -> None:
    """Its records would have two forms; what is not begun may be written by any, and another cluster takes it, too."""
    topic, worker = target
    rows = [row(0, n, b'{"id":%d}' % n, b'{"n":%d}' % n, timestamp=n + 1) for n in range(12_000)]
    folder = _typed(tmp_path / "typed", rows)
    create_topic(broker.bootstrap, topic, 1)
    words = ("restore", folder, "--topic", topic, "--worker", worker)
    enveloped = ("--with", "value.converter=keyfold.Json")
    assert execute(*words, KEYFOLD_FAILPOINTS="restore.committed@2=kill").returncode < 0
    other = invoke(*words, *enveloped)
    assert (other.exit_code, "by other converters" in other.stderr) == (2, True), other.stderr
    done = invoke(*words, "--json")
    assert (json.loads(done.stdout)["before"], json.loads(done.stdout)["sent"]) == (10_000, 2_000), done.stderr
    with EmbeddedKafka(data_dir=tmp_path / "second") as second:
        elsewhere = (*words, "--create", *enveloped, "--bootstrap-servers", second.bootstrap)
        assert invoke(*elsewhere).exit_code == 0
        assert invoke(*elsewhere, "--json").exit_code == 0
        values = {key: value for _, key, value, _, _ in _there(second.bootstrap, topic)}
    assert len(values) == 12_000
    assert json.loads(values[b'{"id":7}'])["payload"] == {"n": 7}
    assert len(_there(broker.bootstrap, topic)) == 12_000


def test_a_damaged_file_is_not_sent(broker: EmbeddedKafka, tmp_path: Path, target: tuple[str, Path]) -> None:
    """Its checksum is compared before its first record goes; the error names it, and it is the same later."""
    topic, worker = target
    damaged = KeptSnapshots(tmp_path / "damaged")
    damaged.keep([row(0, number, b"k%d" % number, b"value") for number in range(10)])
    (data,) = (damaged.topic / "current").iterdir()
    content = data.read_bytes()
    data.write_bytes(content.replace(b"value", b"other", 1))
    assert data.read_bytes() != content
    result = invoke("restore", damaged.topic, "--topic", topic, "--create", "--worker", worker)
    assert f"/{data.name} is damaged" in result.stderr, result.stderr
    assert "next: keyfold snapshot verify" in result.stderr
    assert result.exit_code == 1
    assert _there(broker.bootstrap, topic) == []


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda data: data.unlink(), "is missing"),
        (lambda data: data.write_bytes(data.read_bytes()[:-9]), "cannot be read"),
        (
            lambda data: data.write_bytes(data.read_bytes()[:-200] + bytes(192) + data.read_bytes()[-8:]),
            "cannot be read",
        ),
    ],
    ids=["gone", "cut", "end overwritten"],
)
def test_a_file_that_is_no_parquet_file_is_named(
    broker: EmbeddedKafka, tmp_path: Path, target: tuple[str, Path], damage: Callable[[Path], object], said: str
) -> None:
    """It ends the restore before a record goes, with the file's name, what to do, and 1: later it is the same."""
    topic, worker = target
    snapshots = KeptSnapshots(tmp_path / "damaged")
    snapshots.keep([row(0, number, b"k%d" % number, b"value") for number in range(10)])
    (data,) = (snapshots.topic / "current").iterdir()
    damage(data)
    result = invoke("restore", snapshots.topic, "--topic", topic, "--create", "--worker", worker)
    assert f"/{data.name} {said}" in result.stderr, result.stderr
    assert "next: keyfold snapshot verify" in result.stderr
    assert result.exit_code == 1


@pytest.mark.long
@pytest.mark.parametrize(
    "settings",
    [{}, TYPED_COLUMNS, {**TYPED_COLUMNS, "snapshot_partition_by": "n"}],
    ids=["bytes", "typed", "partitions"],
)
def test_a_restored_topic_compacts_to_an_equal_snapshot(
    spark: SparkSession, broker: EmbeddedKafka, tmp_path: Path, topic_name: str, settings: dict[str, str]
) -> None:
    """A snapshot of a topic, and one of the topic that it was restored to: no key differs."""
    create_topic(broker.bootstrap, topic_name, 2)
    values = ((n, None if n % 11 == 0 else b'{"n":%d}' % n) for n in range(5_000))
    sent = [ToSend(n % 2, b'"k%d"' % (n % 700), value, (("n", b"%d" % n),), n + 1) for n, value in values]
    produce(broker.bootstrap, topic_name, sent)
    restored = f"{topic_name}.restored"
    places = [(tmp_path / "first", topic_name), (tmp_path / "second", restored)]
    first, second = (Deployment(folder, broker.bootstrap, topic) for folder, topic in places)
    for folder, _ in places:
        folder.mkdir()
    first.run_once(spark, **settings)
    folders = [each.snapshots.location for each in (first, second)]
    result = invoke("restore", folders[0], "--topic", restored, "--create", "--worker", first.write()[1])
    assert result.exit_code == 0, result.stderr
    second.run_once(spark, **settings)
    said = json.loads(invoke("snapshot", "diff", *folders, "--json").stdout)
    assert (said["added"], said["changed"], said["removed"]) == (0, 0, 0)
    assert said["same"] > 500
