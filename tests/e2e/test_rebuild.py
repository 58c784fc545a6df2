"""A connector whose storage is lost: what it kept is made anew from its output, and nothing is sent twice."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import KafkaException, Producer
from msgspec.structs import replace

from compactor.catalog.commits import commit_path, list_versions
from compactor.errors import CatalogError, FailpointError, NotVisibleError, PositionError
from compactor.failpoints import STEPS, VARIABLE
from connectors.errors import EXIT_FAILED
from connectors.operations import rebuild as operation
from connectors.operations.rebuild import Rebuilder
from connectors.operations.standing_result import STANDS
from connectors.sinks import publisher, transaction
from connectors.sinks.settings import TransactionLimits
from tests.support.cli import invoke
from tests.support.deployment import PROCESS_TIMEOUT_S, ROOT, Deployment
from tests.support.generations import broken, live, numbers
from tests.support.group_offsets import commit_like_a_sink, hold, positions
from tests.support.kafka import (
    ToSend,
    consume_all,
    create_topic,
    delete_records,
    delete_topic,
    end_offsets,
    produce,
)
from tests.support.open_transactions import hidden_output
from tests.support.promises import broken_promises
from tests.support.records import random_records

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def _selected(step: str) -> Any:
    """Returns a step as a parameter: the one between the two commits is tried each time, the others take minutes."""
    return pytest.param(step, marks=[] if step == "rebuild.positions" else [pytest.mark.long])


@pytest.fixture
def lost(spark: SparkSession, deployment: Deployment) -> Deployment:
    """A connector that has published 200 records of two partitions, in several folds, and lost its storage then."""
    deployment.settings["snapshot.location"] = "none"
    for seed in (1, 2):
        produce(deployment.bootstrap, deployment.topic, random_records(seed, 100))
        deployment.run_once(spark)
    lose(deployment)
    return deployment


def lose(deployment: Deployment) -> None:
    """Loses the storage."""
    deployment.storage.delete_folder("")


def rebuild(deployment: Deployment, *options: str) -> list[dict[str, Any]]:
    """What `keyfold rebuild --json` says."""
    result = invoke("rebuild", *files(deployment), "--json", *options)
    assert result.exit_code == 0, result.output
    found: list[dict[str, Any]] = json.loads(result.stdout)
    return found


def files(deployment: Deployment) -> tuple[object, ...]:
    """The arguments of a command."""
    connector, worker = deployment.write()
    return connector, "--worker", worker


def kept(deployment: Deployment, partition: int) -> dict[bytes, tuple[int, bytes | None]]:
    """Offset and value of the last record of each key in a log, as `keyfold dump` shows it."""
    shown = invoke("dump", *files(deployment), "--topic", deployment.topic, "--partition", partition)
    assert shown.exit_code == 0, shown.output
    rows = [json.loads(line) for line in shown.stdout.splitlines()]
    found = {row["key"]: (row["offset"], row["value"]) for row in rows}
    assert len(found) == len(rows), "one record of each key is kept"
    return found


def test_what_was_kept_is_there_again(spark: SparkSession, deployment: Deployment) -> None:
    """The same last records at the same offsets; the output stays as it is, and later records follow once."""
    deployment.settings["snapshot.location"] = "none"
    for seed in (1, 2):
        produce(deployment.bootstrap, deployment.topic, random_records(seed, 150))
        before = deployment.run_once(spark, min_cleanable_dirty_ratio=0)
    known = [kept(deployment, partition) for partition in (0, 1)]
    lose(deployment)
    with pytest.raises(PositionError, match="keyfold rebuild"):
        deployment.run_once(spark)
    output = consume_all(deployment.bootstrap, deployment.output)
    said = rebuild(deployment)
    assert {one["partition"]: one["offset"] for one in said} == {log.partition: log.published for log in before.logs}
    assert [kept(deployment, partition) for partition in (0, 1)] == known
    assert any(value is None for one in known for _, value in one.values()), (
        "there must be tombstones, or less is tried"
    )
    deployment.run_once(spark)
    assert consume_all(deployment.bootstrap, deployment.output) == output
    produce(deployment.bootstrap, deployment.topic, random_records(3, 100))
    state = deployment.run_once(spark)
    assert deployment.violations() == []
    assert all(log.base is not None for log in state.logs)


def test_a_commit_that_a_killed_owner_has_left_is_set_aside(spark: SparkSession, deployment: Deployment) -> None:
    """A worker does not begin over it; a rebuild does, and a deletion removes it."""
    deployment.settings["snapshot.location"] = "none"
    produce(deployment.bootstrap, deployment.topic, random_records(1, 50))
    deployment.run_once(spark)
    left = commit_path(list_versions(deployment.storage).newest)
    data = deployment.storage.read(left)
    lose(deployment)
    deployment.storage.create(left, data)
    with pytest.raises(CatalogError, match="follows a commit that is gone"):
        deployment.run_once(spark)
    assert sum(one["records"] for one in rebuild(deployment)) > 0
    deployment.run_once(spark)
    assert deployment.violations() == []
    assert [deployment.storage.read(info.path) for info in deployment.storage.walk("lost")] == [data]
    assert invoke("delete", *files(deployment), "--yes").exit_code == 0
    assert deployment.storage.walk("") == []


def test_what_was_not_published_is_read_again(spark: SparkSession, lost: Deployment) -> None:
    """Also where nothing but the output tells of what was before: the source has lost it."""
    produce(lost.bootstrap, lost.topic, random_records(3, 80))
    for partition in (0, 1):
        delete_records(lost.bootstrap, lost.topic, partition, 20)
    before = live(consume_all(lost.bootstrap, lost.output))
    assert [one["lost"] for one in rebuild(lost)] == [0, 0]
    lost.run_once(spark)
    assert lost.caught_up()
    source = consume_all(lost.bootstrap, lost.topic)
    after = live(consume_all(lost.bootstrap, lost.output))
    assert {key: value for key, value in before.items() if key not in {(one.partition, one.key) for one in source}} == {
        key: value for key, value in after.items() if key not in {(one.partition, one.key) for one in source}
    }
    own = [one for one in consume_all(lost.bootstrap, lost.output) if _source_offset(one.headers) >= 20]
    assert broken_promises(source, own, lost.published()) == []


def _source_offset(headers: Any) -> int:
    return int(dict(headers)["keyfold.source.offset"])


def test_a_loss_is_stated_and_must_be_accepted(spark: SparkSession, lost: Deployment) -> None:
    """What the source has lost and the output never had."""
    ends = end_offsets(lost.bootstrap, lost.topic)
    produce(lost.bootstrap, lost.topic, random_records(3, 80))
    delete_records(lost.bootstrap, lost.topic, 0, ends[0] + 7)
    refused = invoke("rebuild", *files(lost))
    assert refused.exit_code == 2
    assert "7 offsets were read or not, and are in no output" in " ".join(refused.output.split())
    assert [one["lost"] for one in rebuild(lost, "--accept-loss")] == [7, 0]
    lost.run_once(spark)
    assert lost.caught_up()
    described = json.loads(invoke("describe", *files(lost), "--json").stdout)
    assert [one["lost_offsets"] for one in described["partitions"]] == [7, 0]


@pytest.mark.long  # test_generations.py has a change that stands
def test_a_rebuild_that_stands_is_told_though_an_error_follows(
    spark: SparkSession, lost: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The result is on stdout, the command ends as the error says, and the next run goes on from there."""
    monkeypatch.setenv(VARIABLE, "takeover.topics=error")
    result = invoke("rebuild", *files(lost), "--json")
    monkeypatch.delenv(VARIABLE)
    assert result.exit_code == EXIT_FAILED
    assert [each["lost"] for each in json.loads(result.stdout)] == [0, 0]
    assert STANDS in " ".join(result.stderr.split())
    lost.run_once(spark)
    assert lost.caught_up()


@pytest.mark.parametrize("step", [_selected(step) for step in STEPS if step.startswith("rebuild.")])
def test_killed_at_a_step(spark: SparkSession, lost: Deployment, step: str) -> None:
    """A worker goes on only where all is done; else it is FAILED, and asked for again it is done."""
    killed = subprocess.run(
        [sys.executable, "-m", "connectors.cli.main", "rebuild", *map(str, files(lost))],
        env={**os.environ, "KEYFOLD_FAILPOINTS": f"{step}=kill", "PYTHONPATH": str(ROOT)},
        cwd=lost.folder,
        timeout=PROCESS_TIMEOUT_S,
        check=False,
        capture_output=True,
    )
    assert killed.returncode < 0, killed.stderr
    if step != "rebuild.committed":
        with pytest.raises(PositionError, match="keyfold rebuild"):
            lost.run_once(spark)
        rebuild(lost)
    else:
        assert "nothing is lost" in " ".join(invoke("rebuild", *files(lost)).output.split())
    produce(lost.bootstrap, lost.topic, random_records(3, 50))
    lost.run_once(spark)
    assert lost.violations() == []


@pytest.mark.long  # test_what_was_kept_is_there_again has the first one
def test_a_later_generation(spark: SparkSession, lost: Deployment) -> None:
    """Its records are told from those of the earlier one; one of which nothing was published begins anew."""
    rebuild(lost)
    assert invoke("resync", *files(lost), "--topic", lost.topic, "--partition", 0).exit_code == 0
    lost.run_once(spark)
    lose(lost)
    assert [one["generation"] for one in rebuild(lost)] == [2, 1]
    produce(lost.bootstrap, lost.topic, random_records(3, 50))
    assert numbers(lost.run_once(spark)) == [2, 1]
    assert broken(lost) == []
    assert invoke("resync", *files(lost)).exit_code == 0
    lose(lost)
    assert [one["generation"] for one in rebuild(lost)] == [4, 3]
    assert numbers(lost.run_once(spark)) == [4, 3]
    assert broken(lost) == []


def test_a_key_that_the_broker_refused_since_a_resync(spark: SparkSession, deployment: Deployment) -> None:
    """The log has what readers have of it, and its next record retires that as another encoding of the key."""
    deployment.settings |= {
        "snapshot.location": "none",
        "errors.tolerance": "all",
        "compaction.key.identity": "json",
        "min.cleanable.dirty.ratio": 0,
    }
    spaced, plain = b'{"id": 1}', b'{"id":1}'
    create_topic(deployment.bootstrap, deployment.output, 2, cleanup_policy="compact", max_message_bytes=2_000)
    produce(deployment.bootstrap, deployment.topic, [(0, spaced, b"old"), (0, b"2", b"other")])
    deployment.run_once(spark)
    produce(deployment.bootstrap, deployment.topic, [(0, spaced, os.urandom(4_000))])
    assert invoke("resync", *files(deployment)).exit_code == 0
    deployment.run_once(spark)
    lose(deployment)
    assert [(one["generation"], one["records"]) for one in rebuild(deployment)] == [(2, 2), (3, 0)]
    deployment.run_once(spark)
    assert len([offset for offset, _ in kept(deployment, 0).values() if offset < 0]) == 1
    produce(deployment.bootstrap, deployment.topic, [(0, plain, b"new")])
    deployment.run_once(spark)
    assert live(consume_all(deployment.bootstrap, deployment.output)) == {(0, b"2"): b"other", (0, plain): b"new"}


def _nothing_lost(spark: SparkSession, deployment: Deployment) -> None:
    rebuild(deployment)


def _recreated_output(spark: SparkSession, deployment: Deployment) -> None:
    delete_topic(deployment.bootstrap, deployment.output)


def _a_position_by_hand(spark: SparkSession, deployment: Deployment) -> None:
    commit_like_a_sink(deployment, 5)


@pytest.mark.parametrize(
    ("before", "said"),
    [
        (_nothing_lost, "nothing is lost"),
        pytest.param(_recreated_output, "it is gone, or was recreated", marks=pytest.mark.long),
        pytest.param(_a_position_by_hand, "was not committed by keyfold", marks=pytest.mark.long),
    ],
)
def test_what_cannot_be_rebuilt(spark: SparkSession, lost: Deployment, before: Any, said: str) -> None:
    """Exit code 2, by name, and the positions stay."""
    before(spark, lost)
    refused = invoke("rebuild", *files(lost))
    assert (refused.exit_code, said in " ".join(refused.output.split())) == (2, True), refused.output


def test_an_output_without_source_headers(spark: SparkSession, deployment: Deployment) -> None:
    """Its records cannot be placed: refused, with the setting's name."""
    produce(deployment.bootstrap, deployment.topic, random_records(1, 50))
    deployment.run_once(spark, output_source_headers_enable=False, snapshot_location="none")
    lose(deployment)
    refused = invoke("rebuild", *files(deployment))
    assert (refused.exit_code, "output.source.headers.enable" in refused.output) == (2, True), refused.output


def test_a_fold_that_was_being_sent(
    spark: SparkSession, deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The position says where it ends: nothing is folded below, and what is missing of it is sent."""
    deployment.settings |= {"snapshot.location": "none", "tasks.max": 1}  # one transaction after the other
    produce(deployment.bootstrap, deployment.topic, random_records(1, 300))
    sent = _sent_in_part(spark, deployment, monkeypatch)
    assert not deployment.caught_up()
    lose(deployment)
    rebuilt = {one["partition"] for one in rebuild(deployment)}
    deployment.run_once(spark, min_compaction_lag_ms=10**13)  # no fold would begin now, and none end at the end
    ends, published = end_offsets(deployment.bootstrap, deployment.topic), deployment.published()
    assert {one: published[one] for one in rebuilt} == {one: ends[one] for one in rebuilt}
    assert len(consume_all(deployment.bootstrap, deployment.output)) > sent
    deployment.run_once(spark, min_compaction_lag_ms=0)  # the others, of which nothing was sent
    assert deployment.caught_up()
    assert deployment.violations() == []


@pytest.mark.parametrize("is_emptied", [False, pytest.param(True, marks=pytest.mark.long)])
def test_a_first_fold_of_a_generation_that_was_being_sent(
    spark: SparkSession, deployment: Deployment, monkeypatch: pytest.MonkeyPatch, *, is_emptied: bool
) -> None:
    """Keys that it had yet to retire, or to delete (of an emptied source), are not forgotten: the next one begins."""
    deployment.settings |= {"snapshot.location": "none", "tasks.max": 1}
    deployment.settings |= {"compaction.key.identity": "json", "key.converter": "keyfold.Json"}
    keys = [b"%d" % (10**20 + number) for number in range(40)]
    put = partial(produce, deployment.bootstrap, deployment.topic)
    put([ToSend(0, key, b"before") for key in (b'{"id": 1}', *keys)])
    deployment.run_once(spark)
    if is_emptied:
        delete_records(deployment.bootstrap, deployment.topic, 0, len(keys) + 1)
    else:
        put([ToSend(0, key, b"after") for key in (*keys, b'{"id":1}')])
    assert invoke("resync", *files(deployment), "--accept-loss").exit_code == 0
    _sent_in_part(spark, deployment, monkeypatch)
    lose(deployment)
    assert {each["generation"] for each in rebuild(deployment)} == {3}
    deployment.run_once(spark)
    last = {record.key: record.value for record in consume_all(deployment.bootstrap, deployment.output)}
    living = {} if is_emptied else dict.fromkeys((*keys, b'{"id":1}'), b"after")
    assert {key: value for key, value in last.items() if value is not None} == living


def _sent_in_part(spark: SparkSession, deployment: Deployment, monkeypatch: pytest.MonkeyPatch) -> int:
    """Has a run fail in the third transaction of its fold; returns how many records the output has then."""
    before = len(consume_all(deployment.bootstrap, deployment.output))
    with monkeypatch.context() as patched:
        patched.setattr(publisher, "TransactionLimits", partial(TransactionLimits, transaction_bytes=100))
        patched.setattr(transaction, "hit", _third_transaction_fails())
        with pytest.raises(FailpointError):
            deployment.run_once(spark)
    sent = len(consume_all(deployment.bootstrap, deployment.output))
    assert sent > before, "the fold must be sent in part, or nothing is tried"
    return sent


def _third_transaction_fails() -> Callable[[str], None]:
    begun = 0

    def hit(step: str) -> None:
        nonlocal begun
        begun += step == "publish.begin"
        if begun == 3:
            raise FailpointError("The process ends here.", "")

    return hit


@pytest.fixture
def shrunk(spark: SparkSession, deployment: Deployment, topic_name: str) -> Iterator[Deployment]:
    """A connector of 16 ids that has lost its storage and one of its topics, of which the ids 0 to 9 were.

    What is left is published by id 10, which a number of partitions or tasks that is known now does not reach.
    """
    gone = f"a-{topic_name}"
    create_topic(deployment.bootstrap, gone, 10, cleanup_policy="delete")
    deployment.settings |= {"topics": f"{gone},{deployment.topic}", "tasks.max": 16, "snapshot.location": "none"}
    produce(deployment.bootstrap, gone, random_records(1, 20))
    produce(deployment.bootstrap, deployment.topic, random_records(1, 20))
    deployment.run_once(spark)
    assert [log.bucket for log in deployment.state().logs if log.topic == deployment.topic] == [10, 11]
    lose(deployment)
    delete_topic(deployment.bootstrap, gone)
    deployment.settings |= {"topics": deployment.topic, "tasks.max": 1}
    yield deployment
    delete_topic(deployment.bootstrap, f"{gone}.compacted")


def test_an_owner_that_wakes_up_commits_nothing_whatever_its_id(spark: SparkSession, shrunk: Deployment) -> None:
    """It was frozen in a transaction, by an id that no partition has now: the positions say how many it had."""
    assert {one.buckets for one in positions(shrunk).values()} == {16}
    _wakes_up_fenced(spark, shrunk)
    assert shrunk.caught_up()
    assert shrunk.violations() == []


@pytest.mark.long  # the test before it has an owner of an id that the positions name
def test_positions_of_an_older_version_name_no_ids(spark: SparkSession, shrunk: Deployment) -> None:
    """Then as many are shut out as an older version may well have had."""
    before = {tp: replace(one, buckets=None) for tp, one in positions(shrunk).items()}
    hold(shrunk, before)
    assert {one.buckets for one in positions(shrunk).values()} == {None}
    _wakes_up_fenced(spark, shrunk)
    assert shrunk.violations() == []


@pytest.mark.long  # test_killed_at_a_step has the kill there
def test_a_rebuild_that_ends_before_its_positions_count_is_begun_again(
    spark: SparkSession, shrunk: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The group holds the lost catalog's positions until all ids are initialised."""

    def ended(*_: object) -> None:
        raise FailpointError("The process ends here.", "")

    before = positions(shrunk)
    with monkeypatch.context() as patched:
        patched.setattr(Rebuilder, "_stands", ended)
        assert invoke("rebuild", *files(shrunk)).exit_code != 0
    assert positions(shrunk) == before
    _wakes_up_fenced(spark, shrunk)
    assert shrunk.violations() == []


@pytest.mark.long  # test_an_owner_that_wakes_up_commits_nothing_whatever_its_id is alike
def test_a_worker_shuts_out_the_ids_that_positions_name_and_its_catalog_does_not_have(
    spark: SparkSession, shrunk: Deployment
) -> None:
    """Earlier versions could end a rebuild before it had shut them out."""
    rebuild(shrunk)
    assert {one.buckets for one in positions(shrunk).values()} == {16}
    frozen = _frozen_owner(shrunk)
    produce(shrunk.bootstrap, shrunk.topic, random_records(3, 20))
    shrunk.run_once(spark)
    with pytest.raises(KafkaException):
        frozen.commit_transaction(PROCESS_TIMEOUT_S)
    assert shrunk.violations() == []


@pytest.mark.long  # test_generation_schedules.py has such a transaction
def test_records_that_an_open_transaction_hides_are_not_left_out(
    spark: SparkSession, deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader of the output ends below our own records: nothing is changed until that transaction is over."""
    deployment.settings["snapshot.location"] = "none"
    produce(deployment.bootstrap, deployment.topic, random_records(1, 100))
    deployment.run_once(spark)
    with hidden_output(deployment, monkeypatch):
        produce(deployment.bootstrap, deployment.topic, random_records(2, 100))
        with pytest.raises(NotVisibleError):  # all is done; readers see it when the transaction is over
            deployment.run_once(spark)
        known, before = [kept(deployment, partition) for partition in (0, 1)], positions(deployment)
        lose(deployment)
        refused = invoke("rebuild", *files(deployment))
        said = " ".join(refused.output.split())
        assert (refused.exit_code, f"{deployment.output}-0 holds records up to offset" in said) == (4, True), said
        assert positions(deployment) == before
    rebuild(deployment)
    assert [kept(deployment, partition) for partition in (0, 1)] == known
    deployment.run_once(spark)
    assert deployment.violations() == []


class LivingWorker:
    """The worker of a storage that was not lost: it publishes at the step `at` of a rebuild, so many `times`."""

    def __init__(self, spark: SparkSession, deployment: Deployment, at: str, times: int) -> None:
        self._spark = spark
        self._deployment = deployment
        self._storage = deployment.folder / "living"
        self._at = at
        self._times = times
        shutil.copytree(deployment.worker["storage.location"], self._storage)
        lose(deployment)

    def hit(self, step: str) -> None:
        """Takes the place of `failpoints.hit`."""
        if step != self._at or not self._times:
            return
        self._times -= 1
        produce(self._deployment.bootstrap, self._deployment.topic, random_records(10 + self._times, 20))
        with pytest.MonkeyPatch.context() as patched:
            patched.setitem(self._deployment.worker, "storage.location", str(self._storage))
            self._deployment.run_once(self._spark)


@pytest.mark.long  # test_an_owner_that_wakes_up_commits_nothing_whatever_its_id is alike
@pytest.mark.parametrize(
    "step", [*map(_selected, ("rebuild.read", "rebuild.after-commit", "rebuild.positions", "rebuild.fence"))]
)
def test_a_worker_that_lives_publishes_meanwhile(
    spark: SparkSession, deployment: Deployment, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Its position is never overwritten: all begins again, and what it sent is in the rebuilt logs."""
    deployment.settings["snapshot.location"] = "none"
    produce(deployment.bootstrap, deployment.topic, random_records(1, 100))
    deployment.run_once(spark)
    living = LivingWorker(spark, deployment, step, times=1)
    monkeypatch.setattr(operation, "hit", living.hit)
    assert {log["partition"]: log["offset"] for log in rebuild(deployment)} == end_offsets(
        deployment.bootstrap, deployment.topic
    )
    produce(deployment.bootstrap, deployment.topic, random_records(3, 50))
    deployment.run_once(spark)
    assert deployment.violations() == []


@pytest.mark.long  # the test before it has the first of the three tries
def test_a_worker_that_lives_and_publishes_each_time(
    spark: SparkSession, deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is an error after three tries; once that worker is stopped `rebuild` does it."""
    deployment.settings["snapshot.location"] = "none"
    produce(deployment.bootstrap, deployment.topic, random_records(1, 100))
    deployment.run_once(spark)
    living = LivingWorker(spark, deployment, "rebuild.positions", times=3)
    monkeypatch.setattr(operation, "hit", living.hit)
    refused = invoke("rebuild", *files(deployment))
    assert (refused.exit_code, "another worker publishes while it is rebuilt" in refused.output) == (2, True)
    rebuild(deployment)
    deployment.run_once(spark)
    assert deployment.violations() == []


def _frozen_owner(deployment: Deployment) -> Producer:
    """Returns the producer of an owner that has sent a record by id 10, and has not committed it."""
    owner = Producer(
        {"bootstrap.servers": deployment.bootstrap, "transactional.id": f"{deployment.name}-10", "log_level": 0}
    )
    owner.init_transactions(PROCESS_TIMEOUT_S)
    owner.begin_transaction()
    owner.produce(deployment.output, b"from the frozen owner", b"k", 0)
    assert owner.flush(PROCESS_TIMEOUT_S) == 0
    return owner


def _wakes_up_fenced(spark: SparkSession, deployment: Deployment) -> None:
    """Rebuilds, and runs once, while an owner is frozen in a transaction by id 10, which it then cannot commit."""
    frozen = _frozen_owner(deployment)
    rebuild(deployment)
    produce(deployment.bootstrap, deployment.topic, random_records(3, 20))
    deployment.run_once(spark)
    with pytest.raises(KafkaException):
        frozen.commit_transaction(PROCESS_TIMEOUT_S)
