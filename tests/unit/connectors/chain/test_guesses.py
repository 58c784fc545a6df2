"""Who writes records, or registers schemas, learns nothing of a secret: no message depends on whether a guess is right.

Each case says what is wrong with something that holds a guess. The guess is the secret once, and another text once: but
for it, both messages are the same.
"""

from __future__ import annotations

import html
import json
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import quote, unquote

import httpx
import pyarrow as pa
import pytest

from compactor.errors import KeyfoldError
from compactor.model.record import SOURCE
from connectors.chain.chain import Chain
from connectors.chain.spec import chain_spec
from connectors.config.connector import ConnectorConfig
from connectors.config.worker import WorkerConfig
from connectors.errors import RegistryError
from connectors.placeholders import resolve
from connectors.registry.schema_registry import SchemaRegistry
from connectors.registry.settings import registry_settings
from connectors.runtime import status
from tests.support.clocks import ManualClock
from tests.support.memory.schema_registry import MemoryRegistry

NAME, OTHER_NAME = "Geheim_4711", "Anders_4722"
TEXT, OTHER_TEXT = 'Geheim&<\\"/4711', 'Anders&<\\"/4722'
"""A secret, and a guess that is wrong; the first two may be names. They differ in letters and digits alone."""
DIFFERENCES: Final = {*zip(TEXT, OTHER_TEXT, strict=True)}
Answer = Callable[[httpx.Request], httpx.Response]
PLACES: Final = {
    "password": {"basic.auth.credentials.source": "USER_INFO", "basic.auth.user.info": "reg:{}"},
    "placeholder": {"basic.auth.credentials.source": "USER_INFO", "basic.auth.user.info": "reg:${{env:SECRET}}"},
    "token": {"bearer.auth.token": "{}"},
}
"""Where the secret is, as a file says it."""


def said(settings: dict[str, str], secret: str, place: str, answer: Answer, value: bytes) -> str:
    """Returns what is said of a record with `value`, in its dead letter or in the connector's status.

    Each converter with a registry sends `secret`, as the settings of `place` say; registries answer `answer`.
    """
    own = {name: text.format(secret) for name, text in PLACES[place].items()}
    registries = [name.removesuffix(".schema.registry.url") for name in settings if name.endswith("registry.url")]
    of_all = {f"{prefix}.{name}": text for prefix in registries for name, text in own.items()}
    made = chain_of({**settings, **of_all}, httpx.MockTransport(answer))
    row = {"topic": "t", "partition": 0, "offset": 1, "timestamp": 7, "timestamp_type": 0, "key": b"k", "headers": []}
    try:
        (text,) = made.apply(pa.RecordBatch.from_pylist([{**row, "value": value}], schema=SOURCE))[
            "rejected"
        ].to_pylist()
    except RegistryError as error:
        text = shown_in_status({**settings, **of_all}, error)
    finally:
        made.close()
    assert text is not None
    return str(text)


def chain_of(settings: dict[str, str], transport: httpx.BaseTransport) -> Chain:
    """Makes the chain of these settings; converters of values ask registries over `transport`."""
    made = Chain(chain_spec(settings), resolve)
    for converter in made._value.converters:
        own: Any = converter
        if hasattr(own, "registry"):
            own.registry = SchemaRegistry(
                registry_settings(own.options), transport=transport, clock=ManualClock(), limit_s=0.2
            )
    return made


def shown_in_status(settings: dict[str, str], error: KeyfoldError) -> str | None:
    """Returns the error as REST and status.json show it."""
    given = {"name": "c", "connector.class": "keyfold.CompactedTopic", "topics": "t", **settings}
    connector, worker = ConnectorConfig.model_construct(given=given), WorkerConfig.model_construct(given={})
    return status.failed(status.Status(), error, None, *status.hidden_in(worker, connector, error)).error


FORMS: Final[tuple[Callable[[str], str], ...]] = (
    str,
    lambda text: json.dumps(text)[1:-1],
    lambda text: json.dumps(text, ensure_ascii=False)[1:-1],
    html.escape,
    lambda text: quote(text, safe=""),
)
URL: Final = "http://127.0.0.1:9"
INSERT: Final = {
    "transforms": "i",
    "transforms.i.type": "InsertField$Value",
    "transforms.i.static.field": "z",
    "transforms.i.static.value": "1",
}


def of_registry(name: str, side: str = "value", **more: str) -> dict[str, str]:
    """Returns the settings of a converter with a registry."""
    at = f"{side}.converter"
    return {
        at: f"keyfold.{name}",
        f"{at}.schema.registry.url": URL,
        **{f"{at}.{key}": text for key, text in more.items()},
    }


def of_schema(kind: str, schema: str) -> Answer:
    """Answers each question for a schema with this one."""
    return lambda _: httpx.Response(200, json={"schema": schema, "schemaType": kind})


def echo(code: int, form: Callable[[str], str]) -> Answer:
    """Refuses what is asked, and repeats it, in a form, with the names and texts in it."""

    def answer(request: httpx.Request) -> httpx.Response:
        body = request.content.decode()
        schema = json.loads(body)["schema"] if body else ""
        asked = " and ".join((unquote(request.url.raw_path.decode()), body, schema, *_texts(schema)))
        error_code = {404: 40403, 422: 42201}.get(code, code)
        return httpx.Response(code, json={"error_code": error_code, "message": form(asked)[-400:]})

    return answer


def _texts(schema: str) -> list[str]:
    try:
        node = json.loads(schema)
    except ValueError:
        return []
    left, texts = [node], list[str]()
    while left:
        each = left.pop()
        if isinstance(each, str):
            texts.append(each)
        elif isinstance(each, dict | list):
            left += each.values() if isinstance(each, dict) else each
    return texts


def enveloped(schema: Any, payload: Any) -> bytes:
    """Returns JSON with a schema."""
    return json.dumps({"schema": schema, "payload": payload}).encode()


def record_of(name: str, value: str) -> bytes:
    """Returns JSON with a schema: a struct with one field, and its default, which a record says."""
    fields = [{"field": "a", "type": "string", "default": value, "doc": value}]
    return enveloped({"type": "struct", "name": name, "doc": value, "fields": fields}, {"a": value})


def both(tell: Callable[[str], str], secret: str, other: str) -> None:
    """Asserts that what is told of the right guess is what is told of a wrong one, but for the guess."""
    right, wrong = tell(secret), tell(other)
    differences = {pair for pair in zip(right, wrong, strict=True) if pair[0] != pair[1]}
    assert differences <= DIFFERENCES, f"{right}\n{wrong}"
    assert "[hidden]" not in right


@pytest.fixture(autouse=True, params=[NAME, TEXT])
def secret(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The secret, which a variable has as well."""
    monkeypatch.setenv("SECRET", request.param)
    return str(request.param)


def other(secret: str) -> str:
    """Returns a guess that is wrong."""
    return OTHER_NAME if secret == NAME else OTHER_TEXT


SCHEMAS: Final[dict[str, Callable[[str], str]]] = {
    "a type": lambda guess: json.dumps({"type": guess}),
    "a name": lambda guess: json.dumps({"type": "record", "name": guess, "fields": [{"name": "a", "type": "none"}]}),
    "a text": lambda guess: json.dumps(
        {"type": "record", "name": "R", "doc": guess, "fields": [{"name": "a", "type": guess}]}
    ),
    "no schema": str,
    "a symbol": lambda guess: json.dumps({"type": "enum", "name": "E", "symbols": [f"{guess}!"]}),
    "a file": lambda guess: f'syntax = "proto3"; import "{guess}"; message R {{ {guess} a = 1; }}',
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("schema", SCHEMAS)
@pytest.mark.parametrize(("name", "kind"), [("Avro", "AVRO"), ("JsonSchema", "JSON"), ("Protobuf", "PROTOBUF")])
def test_a_registered_schema_tells_nothing(secret: str, place: str, schema: str, name: str, kind: str) -> None:
    """Its texts are quoted by errors of the records that name it."""

    def tell(guess: str) -> str:
        answer = of_schema(kind, SCHEMAS[schema](guess))
        return said({**INSERT, **of_registry(name)}, secret, place, answer, b"\0\0\0\0\1\0" + guess.encode())

    if name == "Protobuf" and place != "password":
        pytest.skip("one place will do, as protoc takes its time")
    both(tell, secret, other(secret))


VALUES: Final[dict[str, tuple[dict[str, str], Callable[[str], bytes]]]] = {
    "no JSON": ({**INSERT, "value.converter": "keyfold.Json"}, str.encode),
    "no number": (
        {
            "value.converter": "keyfold.Json",
            "value.converter.schemas.enable": "false",
            "transforms": "c",
            "transforms.c.type": "Cast$Value",
            "transforms.c.spec": "a:int32",
        },
        lambda guess: json.dumps({"a": guess}).encode(),
    ),
    "no type": (
        {**INSERT, "value.converter": "keyfold.Json"},
        lambda guess: enveloped({"type": guess}, {"a": 1}),
    ),
    "no date": (
        {
            "value.converter": "keyfold.Json",
            "value.converter.schemas.enable": "false",
            "transforms": "c",
            "transforms.c.type": "TimestampConverter$Value",
            "transforms.c.field": "a",
            "transforms.c.target.type": "unix",
            "transforms.c.format": "yyyy",
        },
        lambda guess: json.dumps({"a": guess}).encode(),
    ),
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("value", VALUES)
def test_a_value_tells_nothing(secret: str, place: str, value: str) -> None:
    """Another converter of the connector has the secret."""
    settings, made = VALUES[value]

    def tell(guess: str) -> str:
        of_output = of_registry("Avro", "output.value")
        return said({**settings, **of_output}, secret, place, lambda _: httpx.Response(500), made(guess))

    both(tell, secret, other(secret))


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("code", [400, 404, 409, 422])
@pytest.mark.parametrize("form", range(len(FORMS)))
@pytest.mark.parametrize("name", ["Avro", "JsonSchema"])
def test_a_registry_that_repeats_what_it_was_asked_tells_nothing(
    secret: str, place: str, code: int, form: int, name: str
) -> None:
    """A schema is registered that has names and texts of the record; who sees a dead letter sees the answer."""
    own = {"value.subject.name.strategy": "RecordNameStrategy", "auto.register.schemas": str(code != 404).lower()}
    settings = {"value.converter": "keyfold.Json", **of_registry(name, "output.value", **own)}

    def tell(guess: str) -> str:
        value = record_of(guess if guess in {NAME, OTHER_NAME} else "R", guess)
        return said(settings, secret, place, echo(code, FORMS[form]), value)

    both(tell, secret, other(secret))


def test_a_registry_that_does_not_answer_tells_nothing(secret: str) -> None:
    """The connector waits, and its status says for what: the subject, which a record has named."""
    own = {"value.subject.name.strategy": "RecordNameStrategy"}
    settings = {"value.converter": "keyfold.Json", **of_registry("JsonSchema", "output.value", **own)}
    for place in PLACES:
        both(
            lambda guess, at=place: said(  # type: ignore[misc]
                settings, secret, at, lambda _: httpx.Response(503), record_of(guess, "v")
            ),
            secret,
            other(secret),
        )


def test_what_a_registry_repeats_of_a_header_is_hidden(secret: str) -> None:
    """A guess that is wrong changes nothing of that."""

    def answer(request: httpx.Request) -> httpx.Response:
        said = f"{request.headers['authorization']} {secret}"
        return httpx.Response(422, json={"error_code": 42201, "message": said})

    settings = {"value.converter": "keyfold.Json", **of_registry("JsonSchema", "output.value")}
    for place in PLACES:
        text = said(settings, secret, place, answer, record_of("R", other(secret)))
        assert secret not in text
        assert "[hidden]" in text


def test_the_memory_registry_is_asked() -> None:
    """The records above fail for what is wrong with them, not for their settings."""
    settings = {"value.converter": "keyfold.Json", **of_registry("JsonSchema", "output.value")}
    made = chain_of(settings, MemoryRegistry())
    row = {"topic": "t", "partition": 0, "offset": 1, "timestamp": 7, "timestamp_type": 0, "key": b"k", "headers": []}
    batch = pa.RecordBatch.from_pylist([{**row, "value": record_of("R", "v")}], schema=SOURCE)
    assert made.apply(batch)["rejected"].to_pylist() == [None]
    made.close()
