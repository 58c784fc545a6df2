from __future__ import annotations

import base64
import threading
import time
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from connectors.config.clients.librdkafka import ClientKind
from connectors.errors import NoConnectionError, UnreachableError
from connectors.kafka.client_settings import ClientSettings, Setting
from connectors.kafka.probe import SURE_S, BrokerProbe, ErrorListener, first_answer, probe, probe_all, refused
from tests.support.cli import NOBODY

WRONG = KafkaError(KafkaError._AUTHENTICATION, "sasl://b:1/bootstrap: Invalid password (after 30ms in state AUTH_REQ)")
ALERT = KafkaError(KafkaError._TRANSPORT, "ssl://b:1/bootstrap: SSL alert number 42")
CLOSED = KafkaError(KafkaError._TRANSPORT, "b:1/bootstrap: Connection refused")
SLOW = KafkaError(KafkaError._TRANSPORT, "c:1/bootstrap: Connection setup timed out in state CONNECT")
SUMMARY = KafkaError(KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down")
SILENCE = KafkaException(KafkaError(KafkaError._TRANSPORT, "Broker transport failure"))


class _Client:
    """Complains to `heard` at each poll, and answers the request with the number `answers`."""

    def __init__(self, heard: ErrorListener, complaints: list[KafkaError], answers: int | None = None) -> None:
        self._heard = heard
        self._complaints = complaints
        self._answers = answers
        self.waits: list[float] = []

    def list_topics(self, timeout: float) -> str:
        self.waits.append(timeout)
        if len(self.waits) == self._answers:
            return "the cluster"
        raise SILENCE

    def poll(self, timeout: float) -> None:
        for each in self._complaints:
            self._heard(each)


def _ask(
    complaints: list[KafkaError], deadline_s: float, answers: int | None = None, sure_s: float = SURE_S
) -> tuple[Any, _Client]:
    heard = ErrorListener()
    client: Any = _Client(heard, complaints, answers)
    try:
        return first_answer(client, heard, deadline_s, sure_s), client
    except KafkaException as error:
        return error.args[0], client


@pytest.mark.parametrize(
    ("complaints", "code", "text"),
    [
        ([], KafkaError._TRANSPORT, "Broker transport failure"),
        ([CLOSED], KafkaError._TRANSPORT, "Connection refused"),
        ([CLOSED, SUMMARY], KafkaError._ALL_BROKERS_DOWN, "Connection refused"),
        ([SLOW, CLOSED, SUMMARY], KafkaError._TRANSPORT, "Connection refused"),
        ([WRONG, SUMMARY, CLOSED], KafkaError._AUTHENTICATION, "Invalid password"),
        ([ALERT, SUMMARY], KafkaError._SSL, "alert number 42"),
    ],
)
def test_who_is_not_answered_hears_why(complaints: list[KafkaError], code: int, text: str) -> None:
    """A refusal before all else, then the last complaint that says something, then the time-out itself."""
    error, _ = _ask(complaints, 0.0)
    assert (error.code(), text in error.str()) == (code, True)


def test_a_refusal_ends_the_wait_early() -> None:
    """But not at once: another of the brokers may still answer."""
    for complaints in ([WRONG], [CLOSED, SUMMARY]):
        _, client = _ask(complaints, 60.0, sure_s=0.0)
        assert len(client.waits) == 1
        assert _ask(complaints, 60.0, answers=3, sure_s=60.0)[0] == "the cluster"


def test_an_answer_that_takes_its_time_is_waited_for() -> None:
    """Each wait is longer than the one before, as a large cluster's answer does not fit into a short one."""
    found, client = _ask([CLOSED], 60.0, answers=4)
    assert found == "the cluster"
    assert client.waits == sorted(set(client.waits))


@pytest.mark.parametrize("kind", ["admin", "consumer", "producer"])
@pytest.mark.parametrize(
    ("error", "said", "check"),
    [
        (WRONG, "b:1 does not let the {} client in: sasl://b:1/bootstrap: Invalid password.", "{}.sasl.jaas.config"),
        (
            KafkaError(KafkaError._SSL, "verify failed"),
            "b:1 does not let the {} client in: verify failed.",
            "{}.ssl.truststore.location",
        ),
        (CLOSED, "b:1 did not answer the {} client: b:1/bootstrap: Connection refused.", "{}.security.protocol"),
    ],
)
def test_the_message_names_whose_settings_to_correct(
    kind: ClientKind, error: KafkaError, said: str, check: str
) -> None:
    """Which client, what the broker said, and the settings of just that client."""
    found = refused(error, kind, {"bootstrap.servers": "b:1"}, "Connector c: ")
    assert found.message == f"Connector c: {said.format(kind)}"
    assert check.format(kind) in found.action
    assert found.retriable


def test_no_message_shows_what_a_server_of_tokens_repeats() -> None:
    """Librdkafka quotes its answer, which may be a page of any length."""
    config: dict[str, Setting] = {
        "bootstrap.servers": "b:1",
        "sasl.oauthbearer.client.id": "keyfold",
        "sasl.oauthbearer.client.secret": "geheim-4711",
    }
    pair = base64.b64encode(b"keyfold:geheim-4711").decode()
    said = f'failed to retrieve a token: {{"was": "geheim-4711", "and": "{pair}"}} {"x" * 5_000}'
    error = refused(KafkaError(KafkaError._AUTHENTICATION, said), "admin", config, "")
    assert "4711" not in error.message
    assert pair.rstrip("=") not in error.message
    assert 'failed to retrieve a token: {"was": "[hidden]", "and": "[hidden]' in error.message
    assert len(error.message) < 1_200


def test_clients_that_log_in_alike_ask_once() -> None:
    """Settings that have nothing to do with the login make no second question; another password does."""
    asked: list[str] = []

    def ask(kind: ClientKind, *_: object) -> None:
        asked.append(kind)

    alike: dict[str, Setting] = {"sasl.password": "a", "security.protocol": "sasl_ssl"}
    probe_all("c", ClientSettings(alike, {**alike, "fetch.min.bytes": 1}, {**alike, "acks": "all"}), 1.0, ask)
    assert asked == ["admin"]
    asked.clear()
    probe_all("c", ClientSettings(alike, alike, {**alike, "sasl.password": "b"}), 1.0, ask)
    assert asked == ["admin", "producer"]


def test_where_nobody_listens_it_is_told_at_once() -> None:
    """A wrong port is told long before the deadline, by host and port, without a word on security."""
    began = time.monotonic()
    with pytest.raises(UnreachableError, match=r"^Nothing listens at 127\.0\.0\.1:1: .*Connection refused\.") as caught:
        probe("consumer", {"bootstrap.servers": NOBODY}, 30.0)
    assert time.monotonic() - began < 10.0
    assert caught.value.action == "Start the brokers, or correct bootstrap.servers."


@pytest.mark.parametrize("error", [NoConnectionError("no", ""), ValueError("no")])
def test_brokers_are_silent_once_every_probe_has_failed(error: Exception) -> None:
    """An error that is not the brokers' ends the wait for them too."""
    release = threading.Event()

    def fail() -> None:
        raise error

    def fail_later() -> None:
        assert release.wait(30)
        raise error

    probes = BrokerProbe({"a": fail, "b": fail_later})
    assert (probes.has_answer, probes.silent()) == (False, {})
    release.set()
    assert all(thread.join(30) for thread in probes._threads.values())
    assert (probes.has_answer, probes.silent()) == (False, {"a": error, "b": error})


def test_brokers_of_one_connector_that_answer_are_enough() -> None:
    """Where one connector's brokers answer, the worker starts, whatever becomes of the others."""

    def fail() -> None:
        raise NoConnectionError("no", "")

    probes = BrokerProbe({"a": fail, "b": lambda: None})
    assert all(thread.join(30) for thread in probes._threads.values())
    assert (probes.has_answer, probes.silent()) == (True, {})
