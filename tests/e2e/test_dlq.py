"""`keyfold dlq`: dead letters are counted, shown, and go back to their source exactly once."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import TopicPartition as Partition
from typer.testing import Result

from connectors.dev.embedded_kafka import EmbeddedKafka
from connectors.errors import ConflictError
from connectors.kafka import groups
from connectors.kafka.admin import Admin
from connectors.kafka.client_settings import PRODUCER_DEFAULTS, PRODUCER_PINNED
from connectors.operations.redrive.letters import Letter
from connectors.operations.redrive.plan import REPEATED, UNSTAGED, RedriveTarget
from connectors.operations.redrive.producer import RedriveProducer
from tests.support.cli import execute, invoke
from tests.support.dead_letters import deployment_with_letters
from tests.support.deployment import Deployment
from tests.support.kafka import Read, consume_all, create_topic, produce
from tests.support.records import BASE_MS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def strict(tmp_path: Path, broker: EmbeddedKafka, topic_name: str) -> Deployment:
    """A connector of JSON values whose records are dead letters where they are none; not run yet."""
    return deployment_with_letters(tmp_path, broker.bootstrap, topic_name)


def keyfold(deployment: Deployment, *arguments: str) -> Result:
    """Runs `keyfold dlq …` in this process."""
    connector, worker = deployment.write()
    return invoke("dlq", arguments[0], connector, *arguments[1:], "--worker", worker)


def killed(deployment: Deployment, failpoint: str, *arguments: str) -> bool:
    """Runs `keyfold dlq …` as a process that is killed at `failpoint`; returns whether it was."""
    connector, worker = deployment.write()
    words = ["dlq", arguments[0], connector, *arguments[1:], "--worker", worker]
    return execute(*words, KEYFOLD_FAILPOINTS=f"{failpoint}=kill").returncode < 0


def told(deployment: Deployment, *arguments: str) -> Any:
    """Returns what a command says as JSON."""
    done = keyfold(deployment, *arguments, "--json")
    assert done.exit_code == 0, done.stderr
    return json.loads(done.stdout)


def returned(deployment: Deployment) -> list[Read]:
    """Returns the records of the source that came back."""
    found = consume_all(deployment.bootstrap, deployment.topic)
    return [one for one in found if "keyfold.redrives" in dict(one.headers)]


def test_letters_are_counted_shown_and_sent_back_until_it_is_too_often(spark: SparkSession, strict: Deployment) -> None:
    """A record that fails again comes again with its count, and is left at the maximum."""
    produce(
        strict.bootstrap,
        strict.topic,
        [(1, b"k", b"{bad", [("h", b"1")], BASE_MS), (0, None, b"{worse", [], BASE_MS), (0, b"x", b'{"id": 1}')],
    )
    strict.run_once(spark)
    counted = told(strict, "list")
    assert [(one["topic"], one["stage"], one["count"]) for one in counted] == [(strict.topic, "VALUE_CONVERTER", 2)]
    text = keyfold(strict, "list").stdout
    assert "keyfold.Json" in text
    (shown,) = told(strict, "show", "--limit", "1")
    assert shown["context"]["exception.class.name"] == "connectors.errors.DataError"
    assert "{bad" in keyfold(strict, "show").stdout

    assert told(strict, "redrive", "--dry-run")["sent"] == {strict.topic: 2}
    assert returned(strict) == []
    assert told(strict, "redrive")["sent"] == {strict.topic: 2}
    assert told(strict, "redrive")["sent"] == {}
    assert [(one["count"], one["waiting"]) for one in told(strict, "list")] == [(2, 0)]
    first = {one.partition: one for one in returned(strict)}
    assert (first[1].key, first[1].value, first[1].timestamp_ms) == (b"k", b"{bad", BASE_MS)
    assert first[1].headers == (("h", b"1"), ("keyfold.redrives", b"1"))
    assert (first[0].key, first[0].value) == (None, b"{worse")

    strict.run_once(spark)  # both fail again
    again = told(strict, "redrive", "--max-redrives", "1")
    assert (again["sent"], again["left"]) == ({}, {"sent back too often": 2})
    assert told(strict, "redrive", "--max-redrives", "2")["sent"] == {strict.topic: 2}
    counts = sorted(str(dict(one.headers)["keyfold.redrives"]) for one in returned(strict))
    assert counts == ["b'1'", "b'1'", "b'2'", "b'2'"]


@pytest.mark.parametrize(
    "step",
    [
        "redrive.sent",
        *(pytest.param(step, marks=pytest.mark.long) for step in ("redrive.offsets", "redrive.committed")),
    ],
)
def test_a_run_that_is_killed_sends_nothing_twice_and_loses_nothing(
    spark: SparkSession, strict: Deployment, step: str
) -> None:
    """The next run goes on where the transaction of the first ended, or did not."""
    produce(strict.bootstrap, strict.topic, [(0, b"%d" % number, b"{bad") for number in range(20)])
    strict.run_once(spark)
    assert killed(strict, step, "redrive")
    assert keyfold(strict, "redrive").exit_code == 0
    assert sorted(int(one.key or b"") for one in returned(strict)) == list(range(20))


@pytest.mark.long
def test_letters_that_a_filter_leaves_stay_for_a_later_run(spark: SparkSession, strict: Deployment) -> None:
    """Also those that lie before others which have gone: each goes once, whatever the order."""
    produce(
        strict.bootstrap, strict.topic, [(0, b"a", b"{bad"), (0, b"b", b"null"), (0, b"c", b"{bad"), (0, b"d", b"null")]
    )
    strict.run_once(spark)
    first = told(strict, "redrive", "--stage", "TRANSFORMATION")
    assert (first["sent"], first["left"]) == ({strict.topic: 2}, {"left by the filters": 2})
    limited = told(strict, "redrive", "--limit", "1")
    assert limited["sent"] == {strict.topic: 1}
    rest = told(strict, "redrive")
    assert rest["sent"] == {strict.topic: 1}
    assert told(strict, "redrive")["sent"] == {}
    assert sorted(one.key or b"" for one in returned(strict)) == [b"a", b"b", b"c", b"d"]


@pytest.mark.long
def test_a_source_that_was_read_anew_sends_one_letter_of_each_record_back(
    spark: SparkSession, strict: Deployment
) -> None:
    """Each generation makes a letter of it; every letter goes only if that is asked for, also if that run is killed."""
    produce(strict.bootstrap, strict.topic, [(number % 2, b"%d" % number, b"{bad") for number in range(4)])
    strict.run_once(spark)
    connector, worker = strict.write()
    assert invoke("resync", connector, "--worker", worker).exit_code == 0
    strict.run_once(spark)
    assert [one["count"] for one in told(strict, "list")] == [8]
    found = told(strict, "redrive")
    assert (found["sent"], found["left"]) == ({strict.topic: 4}, {REPEATED: 4})
    assert sorted(int(one.key or b"") for one in returned(strict)) == [0, 1, 2, 3]
    assert [one["waiting"] for one in told(strict, "list")] == [0]
    assert killed(strict, "redrive.committed", "redrive", "--every-letter", "--limit", "1")
    assert killed(strict, "redrive.committed", "redrive", "--every-letter")
    told(strict, "redrive", "--every-letter")
    assert sorted(int(one.key or b"") for one in returned(strict)) == [0, 0, 1, 1, 2, 2, 3, 3]
    assert told(strict, "redrive", "--every-letter")["sent"] == {}


def test_a_topic_that_nobody_knows_is_a_usage_error(spark: SparkSession, strict: Deployment) -> None:
    """Nothing is sent, and the group holds no choice of it."""
    produce(strict.bootstrap, strict.topic, [(0, b"a", b"{bad")])
    strict.run_once(spark)
    refused = keyfold(strict, "redrive", "--topic", f"{strict.topic}s")
    assert (refused.exit_code, "no letter in" in refused.stderr) == (2, True), refused.stderr
    assert not Admin({"bootstrap.servers": strict.bootstrap}).has_group(f"keyfold-dlq-{strict.name}")
    assert told(strict, "redrive", "--topic", strict.topic)["sent"] == {strict.topic: 1}


def test_a_position_that_the_brokers_have_forgotten_is_known_to_the_storage(
    spark: SparkSession, strict: Deployment
) -> None:
    """Letters that have gone stay gone; one that came meanwhile goes. With the folder deleted, so is the group."""
    produce(strict.bootstrap, strict.topic, [(0, b"a", b"{bad"), (0, b"b", b"{bad")])
    strict.run_once(spark)
    assert told(strict, "redrive", "--limit", "1")["sent"] == {strict.topic: 1}
    admin = Admin({"bootstrap.servers": strict.bootstrap})
    group = f"keyfold-dlq-{strict.name}"
    admin.delete_group(group)  # as its expiry leaves it
    assert told(strict, "redrive")["sent"] == {strict.topic: 1}
    assert [one.key for one in returned(strict)] == [b"a", b"b"]
    connector, worker = strict.write()
    assert invoke("delete", connector, "--worker", worker, "--yes").exit_code == 0
    assert not admin.has_group(group)


def test_letters_that_do_not_say_of_which_connector_they_are_go_only_when_asked_for(
    spark: SparkSession, strict: Deployment
) -> None:
    """Another connector may write to the same topic; a key's partition is the one that Java's producer chooses."""
    strict.settings["errors.deadletterqueue.context.headers.enable"] = "false"
    produce(strict.bootstrap, strict.topic, [(1, b"k", b"{bad")])
    strict.run_once(spark)
    left = told(strict, "redrive")
    assert (left["sent"], left["left"]) == ({}, {UNSTAGED: 1})
    assert told(strict, "redrive", "--unnamed")["sent"] == {strict.topic: 1}
    (back,) = returned(strict)
    assert back.partition == 0  # murmur2 of the key is even, its CRC odd


def test_a_redrive_that_was_shut_out_says_only_that(strict: Deployment, capfd: pytest.CaptureFixture[str]) -> None:
    """Its client's own lines would stand before it."""
    create_topic(strict.bootstrap, f"{strict.topic}.dead", 1, cleanup_policy="delete")
    config = {**PRODUCER_PINNED, **PRODUCER_DEFAULTS, "bootstrap.servers": strict.bootstrap}
    letter = Letter(0, 0, BASE_MS, b"k", b"v", (), {})
    group = f"keyfold-dlq-{strict.name}"
    with closing(groups.member({"bootstrap.servers": strict.bootstrap}, group)) as member:
        first, _second = (RedriveProducer(config, f"{strict.name}-dlq", group, member) for _ in range(2))
        with pytest.raises(ConflictError, match="Another redrive"):
            first.transaction(Partition(f"{strict.topic}.dead", 0, 1, ""), [(letter, RedriveTarget(strict.topic, 0))])
    assert capfd.readouterr().err == ""
