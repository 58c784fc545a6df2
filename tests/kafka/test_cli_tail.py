from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from connectors.dev.embedded_kafka import EmbeddedKafka
from connectors.kafka.admin import Admin
from tests.support.cli import command, connector_file, environment, execute, invoke, keep, row, worker_file
from tests.support.kafka import create_topic, produce, produce_transaction


def test_tail_shows_committed_records_from_the_beginning(
    broker: EmbeddedKafka, topic_name: str, tmp_path: Path
) -> None:
    """Aborted records are not there; offsets show that they were."""
    create_topic(broker.bootstrap, topic_name)
    produce(broker.bootstrap, topic_name, [(0, b"a", b"1", [("h", b"x")], 5)])
    produce_transaction(broker.bootstrap, topic_name, [(0, b"b", b"2")], commit=False)
    produce_transaction(broker.bootstrap, topic_name, [(0, b"c", None)])
    arguments = topic_name, "--worker", worker_file(tmp_path, broker.bootstrap), "--from-beginning", "--max", 2
    done = execute("tail", *arguments)
    first, second = (json.loads(line) for line in done.stdout.splitlines())
    expected = {"partition": 0, "offset": 0, "timestamp": 5, "timestamp_type": "CreateTime", "key": "a", "value": "1"}
    assert first == {**expected, "headers": [["h", "x"]]}
    assert (second["offset"], second["key"], second["value"]) == (3, "c", None)
    begins = (
        f"From the beginning of {topic_name} (5 offsets), then what comes; without --from-beginning only what comes."
    )
    assert (done.returncode, done.stderr.splitlines()[0]) == (0, begins)


def test_tail_of_one_partition_and_key(broker: EmbeddedKafka, topic_name: str, tmp_path: Path) -> None:
    """Records of other partitions and keys are neither shown nor counted."""
    create_topic(broker.bootstrap, topic_name, 2)
    sent = [(0, b"a", b"0"), (1, b"b", b"1"), (1, b"a", b"2"), (0, b"a", b"3"), (1, b"a", b"4")]
    produce(broker.bootstrap, topic_name, sent)
    where = topic_name, "--worker", worker_file(tmp_path, broker.bootstrap), "--from-beginning", "--max", 2
    done = invoke("tail", *where, "--partition", 1, "--key", "a")
    assert [json.loads(line)["value"] for line in done.stdout.splitlines()] == ["2", "4"]
    assert invoke("tail", *where, "--partition", 2).exit_code == 2


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_tail_follows_until_it_is_told_to_end(
    broker: EmbeddedKafka, topic_name: str, tmp_path: Path, number: signal.Signals
) -> None:
    """New records appear as they come; Ctrl-C and SIGTERM end it with 0; it says its start and that it waits."""
    create_topic(broker.bootstrap, topic_name)
    produce(broker.bootstrap, topic_name, [(0, b"first", b"1")])
    arguments = command("tail", topic_name, "--worker", worker_file(tmp_path, broker.bootstrap), "--from-beginning")
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(arguments, env=environment(), text=True, **pipes) as process:  # type: ignore[call-overload]
        assert json.loads(process.stdout.readline())["key"] == "first"
        produce(broker.bootstrap, topic_name, [(0, b"second", b"2")])
        assert json.loads(process.stdout.readline())["key"] == "second"
        process.send_signal(number)
        assert process.wait(30) == 0
        said = process.stderr.read().splitlines()
        assert said[0].startswith(f"From the beginning of {topic_name} (1 offset), then what comes;")
        assert [line for line in said[1:] if not line.startswith("No record has come for a second")] == []


def test_tail_says_at_which_record_it_begins(broker: EmbeddedKafka, topic_name: str, tmp_path: Path) -> None:
    """At the end of a topic with records: how many are there, and how they are printed."""
    create_topic(broker.bootstrap, topic_name)
    produce(broker.bootstrap, topic_name, [(0, b"a", b"1"), (0, b"b", b"2")])
    arguments = command("tail", topic_name, "--worker", worker_file(tmp_path, broker.bootstrap))
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(arguments, env=environment(), text=True, **pipes) as process:  # type: ignore[call-overload]
        said = process.stderr.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
        assert process.stderr.read() == ""
    assert said.startswith(
        f"From the end of {topic_name}: what comes now. --from-beginning prints what is there (2 off"
    )


def test_tail_of_an_unknown_topic_says_so(
    broker: EmbeddedKafka, new_topic_name: Callable[[str], str], tmp_path: Path
) -> None:
    """A name that does not exist is a usage error, and no topic is made."""
    name = new_topic_name("nothing")
    result = invoke("tail", name, "--worker", worker_file(tmp_path, broker.bootstrap))
    assert (result.exit_code, result.stdout) == (2, "")
    assert f"Topic {name} does not exist." in result.stderr


def test_describe_shows_the_lag_where_a_broker_answers(broker: EmbeddedKafka, tmp_path: Path) -> None:
    """The source's last stable offset, and what of it is not published."""
    create_topic(broker.bootstrap, "orders")
    produce(broker.bootstrap, "orders", [(0, b"a", b"%d" % at) for at in range(7)])
    found = Admin({"bootstrap.servers": broker.bootstrap}).describe(["orders"])["orders"]
    keep(tmp_path, [row(0, b"a", b"0"), row(4, b"a", b"4")], topic_id=found.id)
    files = connector_file(tmp_path), "--worker", worker_file(tmp_path, broker.bootstrap)
    described = json.loads(execute("describe", *files, "--json").stdout)
    assert described["broker_error"] is None
    partition = described["partitions"][0]
    assert (partition["source_end"], partition["ingested"], partition["lag"]) == (7, 5, 7)
