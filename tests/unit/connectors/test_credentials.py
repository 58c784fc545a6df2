"""Wherever a credential can be set, and whoever repeats it, it is in no status, log line, dead letter or output."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote

import httpx
import pyarrow as pa
import pytest
import structlog

from compactor.errors import KeyfoldError
from compactor.model.record import SOURCE
from compactor.secret_forms import HIDDEN
from connectors import known_values, logging_setup
from connectors.chain.chain import Chain
from connectors.chain.spec import chain_spec
from connectors.config.clients.client_names import ALIASES, CLIENT_SETTINGS
from connectors.config.clients.client_translate import JAVA, parse_jaas
from connectors.config.connector import ConnectorConfig
from connectors.config.definitions import definitions
from connectors.config.secrets import credentials_of, is_secret, logged_text, masked, text_of_connector
from connectors.config.worker import WorkerConfig
from connectors.converters.names import CONVERTERS, HEADER_CONVERTERS
from connectors.credentials import secrets_in
from connectors.errors import RegistryError
from connectors.known_values import KnownValues, remember_setting
from connectors.placeholders import resolve
from connectors.registry.schema_registry import SchemaRegistry
from connectors.registry.settings import registry_settings
from connectors.runtime import status
from connectors.transforms.names import PREDICATES, TRANSFORMS
from tests.support.cli import own_logging
from tests.support.clocks import ManualClock
from tests.support.settings import cases

USER, PASSWORD = "reguser", 'p@s>?/"w:rd-4711~'
PAIR = f"{USER}:{PASSWORD}"
ESCAPED = quote(PASSWORD, safe="")


def in_base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode().rstrip("=")


FORMS = {
    "as it is": PASSWORD,
    "with its user": PAIR,
    "as JSON has it": json.dumps(PASSWORD)[1:-1],
    "as a URL has it": f"http://{USER}:{ESCAPED}@registry:1/",
    "escaped in small letters": ESCAPED.lower(),
    "as a header": f"authorization: Basic {in_base64(PAIR)}==",
    "in base64": in_base64(PAIR),
    "in base64 for URLs": in_base64(PAIR).translate(str.maketrans("+/", "-_")),
    "alone in base64": in_base64(PASSWORD),
}
"""How an answer may repeat a password."""
ECHO = " and ".join(FORMS.values())
PARTS = (PASSWORD[:8], json.dumps(PASSWORD)[1:10], ESCAPED[:12], in_base64(PAIR)[:20], in_base64(PASSWORD)[:10])
"""Beginnings of them: a text that is cut must not have these either."""


def leaks(text: str) -> list[str]:
    return [part for part in PARTS if part.lower() in text.lower()]


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> KnownValues:
    """A process that knows no secret yet."""
    known = KnownValues()
    monkeypatch.setattr(known_values, "_known", known)
    monkeypatch.setenv("REG_USER", USER)
    monkeypatch.setenv("REG_PASSWORD", PASSWORD)
    monkeypatch.setenv("REG_ESCAPED", ESCAPED)
    monkeypatch.setenv("REG_URL", f"http://{USER}:{ESCAPED}@127.0.0.1:9")
    return known


Answer = Callable[[httpx.Request], httpx.Response]
URL = "schema.registry.url"
PLACES: dict[str, dict[str, str]] = {
    "in the URL": {URL: f"http://{USER}:{ESCAPED}@127.0.0.1:9"},
    "in the second URL": {URL: f"http://127.0.0.1:9,http://{USER}:{ESCAPED}@127.0.0.1:9"},
    "in the URL of a placeholder": {URL: "${env:REG_URL}"},
    "in placeholders in the URL": {URL: "http://${env:REG_USER}:${env:REG_ESCAPED}@127.0.0.1:9"},
    "as a user without a password": {URL: f"http://{ESCAPED}@127.0.0.1:9"},
    "as a user with an empty password": {URL: f"http://{ESCAPED}:@127.0.0.1:9"},
    "for USER_INFO": {"basic.auth.user.info": PAIR},
    "under its second name": {"schema.registry.basic.auth.user.info": PAIR},
    "in placeholders": {"basic.auth.user.info": "${env:REG_USER}:${env:REG_PASSWORD}"},
    "half in a placeholder": {"basic.auth.user.info": USER + ":${env:REG_PASSWORD}"},
    "as a token": {"bearer.auth.token": PASSWORD},
}
"""Where a registry's credentials stand in a file."""
WITH_REGISTRY = [name.java for name in CONVERTERS.known if URL in {option.name for option in name.load().OPTIONS}]


def forms_in(place: str) -> list[str]:
    """Returns how a registry may repeat the credential `place`: of a token it is not told a user."""
    is_token = place == "as a token" or place.startswith("as a user")
    forms = [form for form in FORMS.values() if not is_token or form in {PASSWORD, ESCAPED.lower()}]
    forms += [in_base64(f"{PASSWORD}:")] if place.startswith("as a user") else []
    return [*forms, " and ".join(forms)]


READERS = [*((name, False) for name in WITH_REGISTRY), (WITH_REGISTRY[0], True)]
"""Converters with a registry, and whether the worker's file names it."""


def chain_of(converter: str, place: str, answer: Answer, *, of_worker: bool) -> Chain:
    """Makes a chain that reads values with `converter`, the registry of which answers with `answer`."""
    own = {URL: "http://127.0.0.1:9", **PLACES[place]}
    if any(name.endswith("user.info") for name in own):
        own["basic.auth.credentials.source"] = "USER_INFO"
    converters = {"value.converter": converter, **{f"value.converter.{name}": text for name, text in own.items()}}
    step = {"transforms": "i", "transforms.i.type": "InsertField$Value", "transforms.i.static.field": "z"}
    settings = {**step, "transforms.i.static.value": "1"}
    spec = chain_spec(settings, converters) if of_worker else chain_spec({**settings, **converters})
    chain = Chain(spec, resolve)
    reader: Any = chain._value.converter
    reader.registry = SchemaRegistry(
        registry_settings(reader.options), transport=httpx.MockTransport(answer), clock=ManualClock(), limit_s=0.2
    )
    return chain


def hostile_answers(said: str) -> Iterator[httpx.Response]:
    """Yields answers of a registry that have `said` in each place from which a message takes a text of its own.

    A schema is not among them: it is what its author says, and a registry could publish a password in one anyway.
    """
    yield httpx.Response(200, json={"schema": [said], "message": said})
    for code in (400, 401, 404, 409, 422, 500):
        yield httpx.Response(code, json={"error_code": 40403 if code == 404 else code, "message": said})
        yield httpx.Response(code, text=said)


RECORD = b"\0\0\0\0\1" + json.dumps({"a": PASSWORD}).encode()


def said_of(chain: Chain) -> tuple[str, bytes | None]:
    """Returns what is said of a record that `chain` cannot read, and the record's value as it is kept."""
    row = {"topic": "t", "partition": 0, "offset": 1, "timestamp": 7, "timestamp_type": 0, "value": RECORD}
    batch = pa.RecordBatch.from_pylist([{**row, "key": b"k", "headers": []}], schema=SOURCE)
    try:
        applied = chain.apply(batch).to_pylist()[0]
    except RegistryError as error:
        return f"{error.message} {error.action}", RECORD
    return applied["rejected"], applied["value"]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(("converter", "of_worker"), READERS)
def test_no_message_shows_what_a_registry_repeats(converter: str, place: str, of_worker: bool) -> None:
    """Whatever answers as a registry, and in whatever form; the record itself stays as it is."""
    answers: list[httpx.Response] = []
    chain = chain_of(converter, place, lambda _: answers[0], of_worker=of_worker)
    forms = forms_in(place)
    for said in forms if place == "for USER_INFO" else (forms[0], forms[-1]):
        for answer in hostile_answers(said):
            answers[:] = [answer]
            reader: Any = chain._value.converter
            reader.registry._schemas = type(reader.registry._schemas)(10, 1 << 20)
            reader.refusals, reader.registry._refusals = type(reader.refusals)(), type(reader.refusals)()
            reader._reads = type(reader._reads)(10)
            text, value = said_of(chain)
            assert (leaks(text), value) == ([], RECORD), (answer.text, text)
            assert len(text) < 2_500
    chain.close()


@pytest.mark.parametrize("place", PLACES)
def test_no_output_shows_what_a_library_repeats(
    place: str, known: KnownValues, capfd: pytest.CaptureFixture[str]
) -> None:
    """The status, a line of the log with its traceback, and a command's stderr."""
    chain = chain_of(WITH_REGISTRY[0], place, lambda _: httpx.Response(401), of_worker=False)
    chain.close()
    given = {f"value.converter.{name}": text for name, text in PLACES[place].items()}
    said = forms_in(place)[-1]
    error = KeyfoldError(f"it says {said}.", f"Look at {PASSWORD}.")
    shown = status.failed(status.Status(), error, None, given).error
    assert shown is not None
    assert (leaks(shown), shown.startswith("it says")) == ([], True)
    with own_logging():
        logging_setup.configure("debug", "json")
        try:
            raise error
        except KeyfoldError:
            structlog.get_logger().exception("failed", setting=said, inner={"a": [said]})
    assert leaks(capfd.readouterr().err) == []
    assert leaks(logged_text(str(error))) == []
    assert logged_text(PASSWORD) != PASSWORD


JAAS = "org.apache.kafka.common.security.plain.PlainLoginModule required "


def secret_settings() -> Iterator[tuple[str, str]]:
    """Yields each setting that is a secret by its name or type, with a text that holds PASSWORD."""
    own = json.dumps(PASSWORD)
    for name in definitions(WorkerConfig):
        if is_secret(name):
            yield name, PASSWORD
    for name in sorted({*CLIENT_SETTINGS, *JAVA, *ALIASES, "sasl.jaas.config"}):
        if is_secret(name):
            yield f"consumer.{name}", f'{JAAS}username="{USER}" password={own};' if "jaas" in name else PASSWORD
    for names, prefix in ((CONVERTERS, "value.converter"), (HEADER_CONVERTERS, "header.converter")):
        yield from _passwords(names, prefix)
    yield from _passwords(TRANSFORMS, "transforms.a")
    yield from _passwords(PREDICATES, "predicates.a")
    yield from ((name, PASSWORD) for name in definitions(ConnectorConfig) if is_secret(name))


def _passwords(names: Any, prefix: str) -> Iterator[tuple[str, str]]:
    for name in names.known:
        for option in name.load().OPTIONS:
            if option.kind == "PASSWORD":
                yield f"{prefix}.{option.name}", PAIR if option.name.endswith("user.info") else PASSWORD


SECRETS = dict(secret_settings())


def test_there_are_settings_of_each_kind() -> None:
    """What is declared as a password is a secret by its name too: files are masked by names."""
    assert len(SECRETS) > 20
    assert [name for name in SECRETS if not is_secret(name)] == []


@pytest.mark.parametrize("name", SECRETS)
def test_no_text_shows_a_secret_setting(name: str) -> None:
    """Neither as a file has it nor in what is said of it; the log knows it once it was remembered."""
    given = {name: SECRETS[name]}
    text = ECHO if PAIR in SECRETS[name] or "jaas" in name else " ".join((PASSWORD, ESCAPED, in_base64(PASSWORD)))
    remember_setting(SECRETS[name], is_secret=is_secret(name), over_rest=False)
    for shown in (str(masked(given)), text_of_connector(text, given), logged_text(text)):
        assert (leaks(shown), HIDDEN in shown) == ([], True)


@pytest.mark.parametrize("name", [*definitions(WorkerConfig), *dict(cases())])
def test_no_text_shows_the_login_in_a_url_whatever_setting_it_stands_in(name: str) -> None:
    """A setting may take several addresses, and a password may have an @ that is not escaped."""
    for password in (ESCAPED, "p@s>4711"):
        given = {name: f"http://127.0.0.1:9/,http://{USER}:{password}@127.0.0.1:9/x"}
        decoded = PASSWORD if password == ESCAPED else password
        said = f"{password} {decoded} {in_base64(f'{USER}:{decoded}')}"
        remember_setting(given[name], is_secret=is_secret(name), over_rest=False)
        for shown in (str(masked(given)), text_of_connector(said, given), logged_text(said)):
            assert "4711" not in shown
            assert leaks(shown) == []


@pytest.mark.parametrize(
    "options",
    [
        'username="u" password="geheim4711"',
        'username="u" password="ge\\"heim 4711;"',
        "username='u' password='ge\"heim4711'",
        "username=u\n  password=geheim4711",
        'clientId="i" clientSecret="ge=heim4711" scope="a"',
        'extension_password="geheim4711" extension_x="geheim4712"',
    ],
)
def test_the_reader_of_jaas_finds_what_is_sent_and_what_is_hidden(options: str) -> None:
    """By the same rules: each secret that a client gets is hidden, also from an entry of a form that is refused."""
    module = "OAuthBearerLoginModule" if "clientId" in options or "extension" in options else "PlainLoginModule"
    entry = f"org.x.{module} required {options};"
    sent = {name: value for name, value in parse_jaas(entry).items() if is_secret(name)}
    hidden = set(secrets_in(entry, is_secret=True))
    values = [value.partition("=")[2] if name.endswith("extensions") else value for name, value in sent.items()]
    assert [value for value in values if "," not in value and value not in hidden] == []
    assert hidden <= set(secrets_in(f"{options} 'never ended", is_secret=True))


def test_of_a_short_password_only_the_pair_is_hidden() -> None:
    """Three characters stand in many words; four to five are hidden as a word alone."""
    for password, said, shown in (
        ("abc", "abc abcd u:abc", "abc abcd [hidden]"),
        ("abcd", "abcd abcde u:abcd", "[hidden] abcde [hidden]"),
        ("abcdef", "xabcdefx u:abcdef", "x[hidden]x [hidden]"),
    ):
        given = {"value.converter.basic.auth.user.info": f"u:{password}"}
        assert text_of_connector(said, given) == shown


def test_librdkafkas_settings_are_told_with_the_login_that_it_sends() -> None:
    """The pair of a client's id and secret goes to a server of tokens."""
    client = {"sasl.oauthbearer.client.id": USER, "sasl.oauthbearer.client.secret": PASSWORD, "client.id": "c"}
    assert {PASSWORD, PAIR, in_base64(PAIR)} <= set(credentials_of(client))
    assert "c" not in credentials_of(client)


def test_what_a_user_of_rest_calls_a_password_is_still_one_of_the_worker(known: KnownValues) -> None:
    """A word that was sent over REST is hidden in the log once the worker's file has it."""
    known.remember_setting("connector-word", is_secret=True, over_rest=True)
    assert logged_text("connector-word") == "connector-word"
    known.remember_setting("connector-word", is_secret=True, over_rest=False)
    assert logged_text("connector-word") == HIDDEN
