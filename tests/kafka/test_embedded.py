"""The embedded broker: a real one, alone on 127.0.0.1, that keeps its data and leaves nothing behind."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from confluent_kafka.admin import AdminClient

from connectors.dev.embedded_kafka import EmbeddedKafka, free_port
from connectors.errors import EXIT_UNREACHABLE, UnreachableError, exit_code
from tests.support.kafka import ToSend, consume_all, create_topic, produce, produce_transaction, wait_until

_COMMAND = "import typer; from connectors.cli.commands.kafka import kafka; typer.run(kafka)"


Run = Callable[..., "tuple[subprocess.Popen[str], list[psutil.Process], str]"]


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    """Runs `keyfold kafka` until it says where it listens; gives it, its children and where, leaves none behind."""
    started: list[psutil.Process] = []

    def command(*arguments: str) -> tuple[subprocess.Popen[str], list[psutil.Process], str]:
        process = subprocess.Popen(
            [sys.executable, "-c", _COMMAND, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "TMPDIR": str(tmp_path)},
        )
        started.append(psutil.Process(process.pid))
        assert process.stdout is not None
        said = process.stdout.readline().strip()
        assert said.startswith("listening on 127.0.0.1:")
        children = started[0].children()
        started.extend(children)
        return process, children, said.removeprefix("listening on ")

    yield command
    for process in started:
        with suppress(psutil.NoSuchProcess):
            process.kill()


def test_a_record_comes_back_as_it_was_sent(broker: EmbeddedKafka, topic_name: str) -> None:
    """Key, value, headers and timestamp survive the broker byte for byte, in the order of each partition."""
    create_topic(broker.bootstrap, topic_name, 2, cleanup_policy="delete")
    sent = [ToSend(0, b"k", b"v", [("h", b"\x00"), ("n", None)], 1_000), ToSend(1, None, None, (), 2_000)]
    produce(broker.bootstrap, topic_name, sent)
    read = consume_all(broker.bootstrap, topic_name)
    assert [(r.partition, r.key, r.value, list(r.headers), r.timestamp_ms) for r in read] == [
        (0, b"k", b"v", [("h", b"\x00"), ("n", None)], 1_000),
        (1, None, None, [], 2_000),
    ]


def test_reading_ends_behind_an_aborted_transaction(broker: EmbeddedKafka, topic_name: str) -> None:
    """A read_committed reader sees no aborted record and still comes to the end of a log that ends in its marker."""
    create_topic(broker.bootstrap, topic_name)
    produce_transaction(broker.bootstrap, topic_name, [(0, b"a", b"1")])
    produce_transaction(broker.bootstrap, topic_name, [(0, b"b", b"2")], commit=False)
    assert [r.key for r in consume_all(broker.bootstrap, topic_name)] == [b"a"]
    assert [r.key for r in consume_all(broker.bootstrap, topic_name, "read_uncommitted")] == [b"a", b"b"]


def test_listens_on_loopback_only(broker: EmbeddedKafka) -> None:
    """No listener of the broker can be reached from another machine."""
    listening = [c.laddr.ip for c in psutil.Process(broker.pid).net_connections() if c.status == psutil.CONN_LISTEN]
    assert listening
    assert set(listening) <= {"127.0.0.1", "::ffff:127.0.0.1"}


def test_other_accounts_can_read_no_record(broker: EmbeddedKafka, topic_name: str) -> None:
    """What the broker makes is for this account alone, whatever the umask."""
    create_topic(broker.bootstrap, topic_name)
    produce_transaction(broker.bootstrap, topic_name, [(0, b"k", b"v")])
    folders = [path for path in broker.log_file.parent.rglob("*") if path.is_dir() and topic_name in path.name]
    assert folders
    made = [each for folder in folders for each in (folder, *folder.iterdir())]
    assert {oct(path.stat().st_mode & 0o077) for path in made} == {"0o0"}


def test_used_port_is_refused(tmp_path: Path) -> None:
    """A given port that somebody has is an error with exit code 4, and leaves no process behind."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        broker = EmbeddedKafka(tmp_path, port)
        with pytest.raises(UnreachableError, match=f"Port {port} of 127.0.0.1 is in use") as caught:
            broker.start()
    assert exit_code(caught.value) == EXIT_UNREACHABLE
    assert not broker.running


@pytest.mark.long  # it takes 12 s
def test_a_port_that_is_lost_is_chosen_anew_and_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, topic_name: str
) -> None:
    """When another process takes the chosen port before the broker binds it, the next one is tried.

    After SIGKILL, start() brings the same data back on the same port.
    """
    free = [free_port() for _ in range(3)]
    with socket.create_server(("127.0.0.1", 0)) as taken, monkeypatch.context() as patch:
        chosen = iter([taken.getsockname()[1], free[0], free[1], free[2]])  # a listener's, then its controller's
        patch.setattr("connectors.dev.embedded_kafka.free_port", lambda: next(chosen))
        patch.setattr("connectors.dev.embedded_kafka._is_free", lambda _port: True)
        broker = EmbeddedKafka(tmp_path).start()
    try:
        before = broker.bootstrap
        assert before == f"127.0.0.1:{free[1]}"
        create_topic(before, topic_name)
        produce(before, topic_name, [(0, b"k", b"v")])
        broker.kill()
        assert not broker.running
        assert broker.start().bootstrap == before
        assert [r.value for r in consume_all(before, topic_name)] == [b"v"]
    finally:
        broker.stop()


def test_a_broker_that_ends_at_start_shows_its_log(tmp_path: Path) -> None:
    """When the broker refuses its properties, the error holds the end of its log and where the log is."""
    broker = EmbeddedKafka(tmp_path, properties={"log.segment.bytes": "1"})
    with pytest.raises(UnreachableError, match=r"log\.segment\.bytes") as caught:
        broker.start()
    assert str(broker.log_file) in str(caught.value)


@pytest.mark.long  # test_command_is_ready_when_it_says_so_and_ends_cleanly has a broker alone
def test_brokers_of_one_cluster_share_its_partitions(tmp_path: Path, topic_name: str) -> None:
    """One that joins another is a further node, and leads some of the partitions."""
    with EmbeddedKafka(tmp_path / "1") as first, EmbeddedKafka(tmp_path / "2", joins=first):
        create_topic(first.bootstrap, topic_name, 8)
        produce(first.bootstrap, topic_name, [(number, b"k", b"v") for number in range(8)])
        found = AdminClient({"bootstrap.servers": first.bootstrap, "log_level": 0}).list_topics(topic_name, 10)
        assert {one.leader for one in found.topics[topic_name].partitions.values()} == {1, 2}


@pytest.mark.parametrize(("number", "given"), [(signal.SIGINT, True), (signal.SIGTERM, False)])
def test_command_is_ready_when_it_says_so_and_ends_cleanly(
    tmp_path: Path, run: Run, number: signal.Signals, given: bool
) -> None:
    """Once `keyfold kafka` prints its address a client can use it; a signal ends the broker, and the command with 0.

    Without --data-dir the broker's data is in a temporary directory, gone when the command has ended.
    """
    address = f"127.0.0.1:{free_port()}"
    where = ("--port", address.rpartition(":")[2], "--data-dir", str(tmp_path / "data")) if given else ()
    process, children, listening = run(*where)
    assert listening == address or not given
    assert AdminClient({"bootstrap.servers": listening, "log_level": 0}).list_topics(timeout=10).brokers
    folder = tmp_path / "data" if given else next(tmp_path.glob("keyfold-kafka-*"))
    log = tmp_path / "kafka.log"
    log.hardlink_to(folder / "kafka.log")  # it can be read after the directory has gone
    process.send_signal(number)
    _, errors = process.communicate(timeout=40)
    assert (process.returncode, errors) == (0, "")
    assert not [child for child in children if child.is_running()]
    assert "shut down completed" in log.read_text(encoding="utf-8")
    assert folder.exists() == given


def test_broker_does_not_outlive_a_killed_command(run: Run) -> None:
    """When the Python process is killed outright, the broker ends by itself."""
    process, children, _ = run()
    os.kill(process.pid, signal.SIGKILL)
    process.communicate(timeout=10)
    wait_until(lambda: not any(child.is_running() for child in children), "the broker has ended")
