"""librdkafka's lines go into the log, and show no secret."""

from __future__ import annotations

import ast
import base64
import json
import logging
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer

from compactor.errors import KeyfoldError
from connectors.kafka.admin import Admin, new_client
from connectors.kafka.client_log import NAME, ClientLog, logged
from tests.support.echo_server import echo_server
from tests.support.kafka import wait_until

ROOT = Path(__file__).parents[4] / "connectors"
SECRET = "Oidc-Secret-4711"
PAIR = base64.b64encode(f"cid:{SECRET}".encode()).decode()


@pytest.fixture
def endpoint() -> Iterator[str]:
    """A server of tokens that repeats what it was sent."""

    def answer(_path: str, headers: Any) -> tuple[int, bytes]:
        return 400, json.dumps({"error": f"you sent {headers} {SECRET}"}).encode()

    with echo_server(answer) as url:
        yield url


def settings(endpoint: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": "127.0.0.1:1",
        "security.protocol": "sasl_plaintext",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.client.id": "cid",
        "sasl.oauthbearer.client.secret": SECRET,
        "sasl.oauthbearer.token.endpoint.url": endpoint,
        "log_level": 7,
        "debug": "security",
    }


@pytest.mark.parametrize("kind", ["consumer", "producer", "admin"])
def test_what_a_server_of_tokens_repeats_is_hidden(
    kind: str, endpoint: str, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    """Nothing goes to stderr beside the log, whatever log_level a connector has."""
    caplog.set_level(logging.DEBUG, NAME)
    config = settings(endpoint)
    client: Any
    if kind == "consumer":
        client = Consumer(logged({**config, "group.id": "g"}))
    elif kind == "producer":
        client = Producer(logged(config))
    else:
        client = new_client(config)

    def is_refused() -> bool:
        client.poll(0.1)
        return "400" in caplog.text

    wait_until(is_refused, "a line about the refused token")
    if kind == "consumer":
        client.close()
    shown = caplog.text + capfd.readouterr().err
    assert "an answer that is not shown (400)" in caplog.text
    assert [part for part in (SECRET, PAIR[:12]) if part in shown] == []


def test_an_admin_client_serves_its_lines(endpoint: str, caplog: pytest.LogCaptureFixture) -> None:
    """With each request: nothing else polls it, and they would be kept for as long as it lives."""
    caplog.set_level(logging.DEBUG, NAME)
    admin = Admin(settings(endpoint), deadline_s=0.1)

    def is_logged() -> bool:
        with suppress(KafkaException, KeyfoldError):  # no broker answers
            admin.cluster_id()
        return bool(caplog.records)

    wait_until(is_logged, "a line")
    admin.close()


def test_no_client_is_made_without_a_logger() -> None:
    """Outside of connectors/kafka too."""
    bare = []
    for path in ROOT.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") in {"Consumer", "Producer", "AdminClient"}:
                said = ast.unparse(node)
                if "logged(" not in said and "logger=" not in said:
                    bare.append(f"{path.relative_to(ROOT)}: {said}")
    assert bare == []


def test_its_repr_shows_nothing() -> None:
    """A traceback or a message of confluent-kafka may show it."""
    assert repr(logged({"sasl.password": SECRET})["logger"]) == repr(ClientLog({})) == "ClientLog()"
