"""`keyfold connectors` with a server that is no worker, or repeats what it was sent."""

from __future__ import annotations

import base64
import gzip
import json
import tracemalloc
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from connectors.cli.commands.connectors import PASSWORD_VARIABLE, URL_VARIABLE
from connectors.rest.client import ANSWER_BYTES
from tests.support.cli import invoke
from tests.support.echo_server import echo_server

PASSWORD = "geheim-4711"
JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="jaas-4711";'
SECRETS = {
    "consumer.override.sasl.password": "kafka-4711",
    "producer.override.sasl.jaas.config": JAAS,
    "value.converter": "keyfold.Avro",
    "value.converter.bearer.auth.token": "token-4711-xyz",
    "value.converter.schema.registry.url": "http://reg:registry-4711@127.0.0.1:1",
}
STATUS: dict[str, Any] = {"connector": {"state": "RUNNING", "worker_id": "w"}, "tasks": []}


@pytest.fixture(autouse=True)
def _surroundings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(URL_VARIABLE, raising=False)
    monkeypatch.setenv(PASSWORD_VARIABLE, PASSWORD)


def told(answer: Callable[[str], Any], *arguments: str) -> tuple[int, str]:
    """Runs `keyfold connectors ARGUMENTS…` against what makes its answers of the login; its exit code and output."""

    def answers(_: str, headers: Mapping[str, str]) -> tuple[int, bytes]:
        sent = headers["Authorization"].partition(" ")[2]
        return 200, json.dumps(answer(f"{sent} {base64.b64decode(sent).decode()}")).encode()

    with echo_server(answers) as url:
        at = ("--url", url, "--user", "ann") if "--url" not in arguments else ()
        done = invoke("connectors", *(text.replace("HOST", url[7:]) for text in arguments), *at)
    return done.exit_code, done.output


@pytest.mark.parametrize(
    ("answer", "arguments"),
    [
        (lambda said: {said: {"status": STATUS, "info": {"config": {"topics": "t"}}}}, ("list",)),
        (lambda said: {**STATUS, said: said}, ("show", "c", "--json")),
        (lambda said: {said: {said: [said]}}, ("list", "--json")),
    ],
)
def test_names_in_an_answer_show_no_login(answer: Callable[[str], Any], arguments: tuple[str, ...]) -> None:
    """A server may repeat it as the name of a connector or of a setting."""
    code, output = told(answer, *arguments)
    assert code == 0, output
    assert "[hidden] [hidden]" in output
    assert [
        part for part in (PASSWORD, base64.b64encode(f"ann:{PASSWORD}".encode()).decode()[:12]) if part in output
    ] == []


@pytest.mark.parametrize("user", ["Token4711a", "sometokenoflowerletters", "geheimeswort:"])
def test_a_token_in_place_of_a_user_is_not_shown(user: str) -> None:
    """Neither as it is, nor as HTTP's Basic has it."""
    trace = {"state": "FAILED", "worker_id": "w"}
    code, output = told(
        lambda said: {**STATUS, "connector": {**trace, "trace": said}},
        "show",
        "c",
        "--json",
        "--url",
        f"http://{user}@HOST",
    )
    assert code == 0, output
    assert output.count("[hidden]") == 4  # status and config
    assert user[:8] not in output


@pytest.mark.parametrize(
    "answer", [["a"], None, {"connector": STATUS["connector"]}, {"c": 1}, "text", 7, {"offsets": 1}]
)
@pytest.mark.parametrize("arguments", [("list",), ("show", "c"), ("offsets", "c")])
def test_an_answer_of_another_form_is_no_workers(answer: Any, arguments: tuple[str, ...]) -> None:
    """Exit code 4, the address, and what to do; no defect is to be reported."""
    code, output = told(lambda _: answer, *arguments)
    assert (code, "has another form" in output, "report it" in output) == (4, True, False), output
    assert "next: Name the worker's address with --url." in output


COMPRESSED = {"Content-Encoding": "gzip"}


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ((200, gzip.compress(b'"' + b"x" * 50_000_000 + b'"'), COMPRESSED), "it is compressed"),
        ((200, b'"' + b"x" * ANSWER_BYTES + b'"'), f"it is larger than {ANSWER_BYTES} bytes"),
        ((200, b"[" + b"[]," * 2_000_000 + b"[]]"), "it has more than 4,000,000 values"),
        ((200, b"[" + b'{"":0},' * 1_000_000 + b"[]]"), "it has more than 4,000,000 values"),
        ((200, b"[" * 200_000), "it is nested too deeply"),
        ((200, b"[" * 950 + b"]" * 950), ""),
        ((200, b'{"more": "'), "its answer is not JSON"),
        ((503, b"[" * 200_000), "The worker answered 503 Service Unavailable."),
        ((503, b'{"message": "\\u001b[2J\\u202e"}'), r"\x1b[2J\u202e"),
    ],
    ids=range(9),
)
@pytest.mark.parametrize(
    "arguments",
    [("show", "c"), *(pytest.param(more, marks=pytest.mark.long) for more in (("list", "--json"), ("pause", "c")))],
)
def test_an_answer_costs_no_more_than_it_may(
    answer: tuple[int, bytes] | tuple[int, bytes, Mapping[str, str]], said: str, arguments: tuple[str, ...]
) -> None:
    """In bytes, values and depth, also once it is unpacked; no defect is to be reported."""
    with echo_server(lambda *_: answer) as url:
        tracemalloc.start()
        done = invoke("connectors", *arguments, "--url", url)
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert (said in done.output, "report it" in done.output) == (True, False), done.output[:500]
    assert most < 6 * ANSWER_BYTES


@pytest.mark.parametrize("command", ["create", "update"])
def test_a_refusal_shows_no_secret_of_the_file(command: str, tmp_path: Path) -> None:
    """A server may say in its refusal what each setting holds."""
    file = tmp_path / "c.json"
    file.write_text(json.dumps({"name": "c", "connector.class": "keyfold.CompactedTopic", "topics": "t", **SECRETS}))
    said = json.dumps({"message": f"bad values: {' '.join(SECRETS.values())} jaas-4711 registry-4711"}).encode()
    with echo_server(lambda *_: (400, said)) as url:
        done = invoke("connectors", command, str(file), "--url", url)
    assert (done.exit_code, "bad values" in done.output, "4711" in done.output) == (3, True, False), done.output
