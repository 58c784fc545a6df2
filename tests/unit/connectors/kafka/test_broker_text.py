"""What brokers and servers of tokens say is shown without what they were sent."""

from __future__ import annotations

import ast
import base64
from pathlib import Path

import pytest
from confluent_kafka import KafkaError

from connectors.kafka.broker_text import SentCredentials, broker_text
from connectors.kafka.client_log import logged
from connectors.kafka.errors import typed

ROOT = Path(__file__).parents[4] / "connectors"
PAIR = base64.b64encode(b"cid-4712:Own-Secret-4712").decode()


@pytest.mark.parametrize("said", [f"401 for Basic {PAIR}", f"you sent Own-Secret-4712, {PAIR}", "lkc-4712 is unknown"])
def test_no_error_shows_what_a_client_of_this_process_has_sent(said: str) -> None:
    """Also of a connector over REST, in whose texts the worker's own settings are not looked for."""
    logged(
        {
            "sasl.oauthbearer.client.id": "cid-4712",
            "sasl.oauthbearer.client.secret": "Own-Secret-4712",
            "sasl.oauthbearer.extensions": "logicalCluster=lkc-4712,x=y",
        }
    )
    error = KafkaError(KafkaError._AUTHENTICATION, said)
    for text in (broker_text(error), str(typed(error, "Reading", "b:1"))):
        assert [part for part in ("4712", PAIR[:12]) if part in text] == []
        assert "[hidden]" in text


TOKEN_SERVER = 'Failed to retrieve JWT token from "http://h/t": '


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ('{"error": "invalid_grant", "error_description": "of you, geheim-4711"} (400)', "invalid_grant (400)"),
        ('{"error": "geheim 4711", "error_description": "x"} (400)', "an answer that is not shown (400)"),
        ("<html>grant_type=x&assertion=geheim-4711 (401)", "an answer that is not shown (401)"),
        ("geheim-4711 " * 100, "an answer that is not shown"),
        ("Failed to parse JSON response at 0/575 (200)", "Failed to parse JSON response at 0/575 (200)"),
        ('Expected JSON response with "id_token" field', 'Expected JSON response with "id_token" field'),
        ("Couldn't connect to server (-1)", "Couldn't connect to server (-1)"),
    ],
)
def test_of_an_answer_of_a_server_of_tokens_the_code_is_shown(said: str, told: str) -> None:
    """The rest repeats a request that was made for this login; librdkafka's own reasons stay."""
    for asked in (TOKEN_SERVER, "Failed to acquire SASL OAUTHBEARER token: "):
        assert broker_text(KafkaError(KafkaError._AUTHENTICATION, asked + said)).endswith(f": {told}")


def test_an_answer_is_shown_in_part() -> None:
    """A server of tokens may send a page, and a broker some megabytes."""
    assert len(broker_text(KafkaError(KafkaError._FAIL, "x " * (1 << 20)))) == 1_000


def test_the_newest_logins_are_remembered() -> None:
    """However many clients a worker makes in its life."""
    sent = SentCredentials(most_forms=20)
    for number in range(10, 99):
        sent.remember({"sasl.password": f"Password-{number}"})
        sent.remember({"client.id": "no secret"})
    assert sent.hidden_in("Password-98 and Password-10") == "[hidden] and Password-10"


def test_nothing_else_takes_the_words_of_librdkafka() -> None:
    """In no message and no line of the log: the calls here look at them, or hide what was sent themselves."""
    looks = {"kafka/broker_text.py", "kafka/probe.py", "config/clients/librdkafka.py"}
    calls = [
        f"{path.relative_to(ROOT)}: {ast.unparse(node)}"
        for path in ROOT.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "str"
        and not node.args
    ]
    assert [call for call in calls if call.partition(":")[0] not in looks] == []
