"""The registry's client keeps what never changes, retries what does not answer, and says what is refused."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from connectors.converters.wire_format import WireFormat
from connectors.data.kept import KEPT_MS, Refusals
from connectors.errors import DataError, RegistryError, RegistryRefusedError, is_outage
from connectors.options import OptionsError, read
from connectors.registry.answers import RegisteredSchema
from connectors.registry.http_client import MAX_BYTES
from connectors.registry.schema_registry import LIMIT_S, WAITS_MS, SchemaRegistry
from connectors.registry.settings import OPTIONS, registry_settings
from tests.support.clocks import ManualClock
from tests.support.memory.schema_registry import MemoryRegistry

SCHEMA = '{"type":"string"}'


class Clock(ManualClock):
    """A clock that stands until it is advanced, and notes how long (ms) was slept."""

    def __init__(self) -> None:
        super().__init__()
        self.slept: list[int] = []

    def sleep_ms(self, ms: int) -> None:
        """Moves it."""
        self.slept.append(ms)
        super().sleep_ms(ms)


def registry(memory: httpx.BaseTransport, clock: Clock | None = None, **texts: Any) -> SchemaRegistry:
    """Returns a client of `memory`."""
    given = {"schema.registry.url": "http://a:1", **{name.replace("_", "."): text for name, text in texts.items()}}
    return SchemaRegistry(registry_settings(read(OPTIONS, given)), transport=memory, clock=clock or Clock())


def test_a_schema_is_asked_for_once() -> None:
    """It never changes once it has an id."""
    memory = MemoryRegistry()
    client, number = registry(memory), memory.add(SCHEMA)
    assert client.schema(number) == client.schema(number) == RegisteredSchema(SCHEMA)
    assert len(memory.asked) == 1


def test_an_id_that_is_not_there_is_an_error_of_the_record_and_asked_for_again_later() -> None:
    """It may be there after a while."""
    memory, clock = MemoryRegistry(), Clock()
    client = registry(memory, clock)
    for _ in range(3):
        with pytest.raises(DataError, match="no schema 1"):
            client.schema(1)
    assert len(memory.asked) == 1
    memory.add(SCHEMA)
    clock.advance(KEPT_MS)
    assert client.schema(1).text == SCHEMA


def test_a_registry_that_is_away_is_asked_again() -> None:
    """A connection that fails, 500 and 429 say nothing of the schema."""
    memory, clock = MemoryRegistry(), Clock()
    client, number = registry(memory, clock), memory.add(SCHEMA)
    memory.fails = [httpx.ConnectError("refused"), httpx.Response(500), httpx.Response(429)]
    assert client.schema(number).text == SCHEMA
    assert len(memory.asked) == 4
    assert clock.slept == [100, 200, 400]


def test_a_registry_that_stays_away_is_no_error_of_a_record() -> None:
    """Nothing is known then, and it is asked again later."""
    memory = MemoryRegistry()
    memory.fails = [httpx.ReadTimeout("late")] * (len(WAITS_MS) + 1)
    clock = Clock()
    with pytest.raises(RegistryError, match="does not answer: ReadTimeout at http://a:1"):
        registry(memory, clock).schema(memory.add(SCHEMA))
    assert clock.slept == [100, 200, 400]


def test_an_id_that_is_never_answered_is_no_error_of_a_record() -> None:
    """Other ids may be answered by a proxy alone, while the registry is away; the question is named."""
    memory = MemoryRegistry()
    known, dripping = memory.add(SCHEMA), memory.add(SCHEMA.replace("r", "s"))
    client = registry(memory, Clock())
    assert client.schema(known).text == SCHEMA
    for _ in range(2):
        memory.fails = [httpx.ReadTimeout("late")] * (len(WAITS_MS) + 1)
        with pytest.raises(RegistryError, match=f"ReadTimeout at http://a:1, asked for schema {dripping}") as caught:
            client.schema(dripping)
        assert f"http://a:1/schemas/ids/{dripping} is answered within 5 s" in caught.value.action
        assert client.schema(known).text == SCHEMA


class Hanging(httpx.BaseTransport):
    """Answers nothing, for as long as it is waited for; `asked` has the addresses."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.asked: list[str] = []

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Waits."""
        self.asked.append(f"{request.url.host}:{request.url.port}")
        self.clock.advance(round(request.extensions["timeout"]["read"] * 1000))
        raise httpx.ReadTimeout("late")


@pytest.mark.parametrize("urls", ["http://a:1", "http://a:1,http://b:2", "http://a:1,http://b:2,http://c:3"])
def test_a_registry_that_hangs_takes_some_seconds_in_all(urls: str) -> None:
    """All tries and all addresses together, each of which is asked."""
    clock = Clock()
    hanging, began_ms = Hanging(clock), clock.at_ms
    with pytest.raises(RegistryError, match="ReadTimeout at http://"):
        registry(hanging, clock, schema_registry_url=urls).schema(1)
    assert clock.at_ms - began_ms <= LIMIT_S * 1000 + 10
    assert {f"http://{one}" for one in hanging.asked} == set(urls.split(","))


def error(status: int, code: int) -> httpx.Response:
    """Returns an error as a registry answers it."""
    return httpx.Response(status, json={"error_code": code, "message": "Why."})


MISSING = [error(404, 40401), error(404, 40402), error(404, 40403)]
REFUSED = [error(409, 409), error(422, 42201)]
STRANGE = [
    httpx.Response(404, json={"error_code": 404, "message": "HTTP 404 Not Found"}),
    httpx.Response(404, text="<html>Not Found</html>"),
    httpx.Response(404, json=[]),
    error(400, 40401),
    error(401, 40101),
    error(403, 40403),
    error(405, 405),
    httpx.Response(302, json={}),
    httpx.Response(200, json={"message": "It works."}),
    httpx.Response(200, json={"id": None, "schema": None}),
    httpx.Response(200, json=["a"]),
    httpx.Response(200, text="It works."),
    httpx.Response(404, json={"error_code": [40403]}),
    *(
        httpx.Response(200, text=f'{{"id": {number}}}')
        for number in ("1e400", "-1", "99999999999", "true", "1.5", '"1"', "9" * 5_000)
    ),
]
BAD_SCHEMAS = [
    '{"schema": "\\ud800"}',
    '{"schema": "a", "schemaType": ["AVRO"]}',
    '{"schema": "a", "references": 5}',
    '{"schema": "a", "references": ["name"]}',
    *(
        f'{{"schema": "a", "references": [{{"name": {name}, "subject": {subject}, "version": {version}}}]}}'
        for name, subject, version in (
            ('"a"', '"b"', "1e400"),
            ('"a"', '"b"', "0"),
            ('"a"', '"b"', "99999999999"),
            ('"a"', '"\\ud800"', "1"),
            ('"a"', '["b"]', "1"),
            ("1", '"b"', "1"),
        )
    ),
]


WAYS: dict[str, Callable[[SchemaRegistry], Any]] = {
    "schema": lambda client: client.schema(1),
    "version": lambda client: client.version("s", 1),
    "find": lambda client: client.find("s", RegisteredSchema(SCHEMA)),
    "register": lambda client: client.register("s", RegisteredSchema(SCHEMA)),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("answers", "expected"), [(MISSING, DataError), (REFUSED, DataError), (STRANGE, RegistryError)]
)
def test_only_what_a_registry_says_of_a_schema_is_an_error_of_the_record(
    way: str, answers: list[httpx.Response], expected: type[Exception]
) -> None:
    """A wrong path, a proxy or a right that is missing would else make dead letters of all records."""
    if answers is REFUSED and way in {"schema", "version"}:
        expected = RegistryError
    for answer in answers:
        memory = MemoryRegistry()
        memory.always, client = answer, registry(memory)
        with pytest.raises(expected) as found:
            WAYS[way](client)
        if expected is RegistryError:
            assert "http://a:1/" in str(found.value)
            assert "Check " in str(found.value) or "check " in str(found.value)


@pytest.mark.parametrize("text", BAD_SCHEMAS)
def test_a_schema_of_other_types_than_a_registry_has_is_no_error_of_the_record(text: str) -> None:
    """Nothing is made of it, and no record is let go."""
    client = registry(httpx.MockTransport(lambda _: httpx.Response(200, text=text)))
    for way in ("schema", "version"):
        with pytest.raises(RegistryRefusedError, match="no schema registry"):
            WAYS[way](client)


def test_an_id_that_cannot_be_written_is_no_error_of_the_record() -> None:
    """With Apicurio's ids of 8 bytes it can."""
    client = registry(httpx.MockTransport(lambda _: httpx.Response(200, json={"id": 1 << 31})))
    with pytest.raises(RegistryRefusedError):
        WAYS["register"](client)
    client.largest_id = WireFormat("io.apicurio.Legacy8ByteIdHandler", is_key=False).largest_id
    assert WAYS["register"](client) == 1 << 31
    assert WireFormat("", is_key=False).written(WireFormat("", is_key=False).largest_id)


CREDENTIALS = [
    {"schema_registry_url": "http://reguser:regPass99@a:1"},
    {"basic_auth_credentials_source": "USER_INFO", "basic_auth_user_info": "reguser:regPass99"},
    {"basic_auth_credentials_source": "USER_INFO", "basic_auth_user_info": "reguser:??>>??>>regPass99"},
    {"bearer_auth_token": "regPass99"},
]


@pytest.mark.parametrize("texts", CREDENTIALS)
def test_what_is_sent_as_a_credential_is_not_shown_where_an_answer_repeats_it(texts: dict[str, Any]) -> None:
    """Neither as it is nor as a header has it; whoever may see a status may not log in at the registry."""

    def echo(request: httpx.Request) -> httpx.Response:
        sent = request.headers["Authorization"]
        scheme, credential = sent.split()
        alone = credential if scheme == "Bearer" else base64.b64decode(credential).decode()
        url = credential.translate(str.maketrans("+/", "-_")).rstrip("=")
        said = f"request was: accept: x authorization: {sent} and {credential} {alone} {url} [{alone.split(':')[-1]}]"
        return httpx.Response(404, json={"error_code": 40403, "message": said})

    with pytest.raises(DataError) as caught:
        registry(httpx.MockTransport(echo), **texts).schema(1)
    said = caught.value.message
    assert "request was: accept: x" in said
    for secret in ("regPass99", base64.b64encode(b"reguser:")[:8].decode(), "cmVnUGFzczk5", "/Pj4", "Pz8-"):
        assert secret not in said


CONFLICT = (
    'Schema being registered is incompatible with an earlier schema for subject "s", details: [{errorType:'
    "'READER_FIELD_MISSING_DEFAULT_VALUE', description:'The field 'guess' at path '/fields/1' in the new schema has no "
    "default value', additionalInfo:'guess'}, {oldSchema: '{\"doc\": \"guess\"}'}, {compatibility: 'BACKWARD'}]"
)
OF_APICURIO = "Incompatible artifact: s [AVRO], list: [NAME_MISMATCH at /name, TYPE_MISMATCH at /fields/0/type/0]"


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        (CONFLICT, "READER_FIELD_MISSING_DEFAULT_VALUE, /fields/1."),
        (OF_APICURIO, "NAME_MISMATCH, TYPE_MISMATCH, /name, /fields/0/type/0."),
        ("Why not, guess.", "it gives no kind of error."),
        (" ".join(f"A_{chr(65 + one % 26) * (one // 26 + 2)}" for one in range(400)), ""),
    ],
    ids=["Confluent", "Apicurio", "no kind", "many"],
)
def test_of_an_incompatible_schema_the_kinds_of_error_and_their_places_are_shown(message: str, shown: str) -> None:
    """An earlier schema is quoted in the answer, which anyone may have registered: nothing of that is shown."""
    answer = httpx.Response(409, json={"error_code": 409, "message": message})
    with pytest.raises(DataError, match="incompatible with an earlier one") as caught:
        registry(httpx.MockTransport(lambda _: answer)).register("s", RegisteredSchema(SCHEMA))
    assert caught.value.message.endswith(shown)
    assert "guess" not in caught.value.message
    assert len(caught.value.message) < 1_000


def test_a_password_that_looks_like_a_kind_of_error_is_not_shown() -> None:
    """An answer may repeat what it was sent."""
    answer = httpx.Response(409, json={"error_code": 409, "message": "READER_FIELD_MISSING at /fields/1 for PASS_WORD"})
    texts: dict[str, Any] = {"basic_auth_credentials_source": "USER_INFO", "basic_auth_user_info": "reguser:PASS_WORD"}
    with pytest.raises(DataError, match="READER_FIELD_MISSING, /fields/1") as caught:
        registry(httpx.MockTransport(lambda _: answer), **texts).register("s", RegisteredSchema(SCHEMA))
    assert "PASS_WORD" not in caught.value.message


@pytest.mark.parametrize("message", ["x" * 100_000, ["x"], {"a": 1}, "\ud800", 7])
def test_what_a_registry_says_is_shown_in_part(message: Any) -> None:
    """A text, in one line of bounded length that UTF-8 can write."""
    body = json.dumps({"error_code": 40403, "message": message})
    with pytest.raises(DataError) as caught:
        registry(httpx.MockTransport(lambda _: httpx.Response(404, text=body))).schema(1)
    assert len(caught.value.message.encode()) < 600


@pytest.mark.parametrize("answer", [*MISSING[:1], *REFUSED])
def test_a_schema_that_is_refused_is_asked_for_again_later(answer: httpx.Response) -> None:
    """Not for each of the records that have it."""
    memory, clock = MemoryRegistry(), Clock()
    memory.always, client = answer, registry(memory, clock)
    for ask in (client.find, client.register):
        memory.asked.clear()
        for _ in range(100):
            with pytest.raises(DataError, match="Why" if answer.status_code != 409 else "incompatible"):
                ask("s", RegisteredSchema(SCHEMA))
        assert len(memory.asked) == 1
    with pytest.raises(DataError):
        client.register("s", RegisteredSchema('{"type":"int"}'))
    memory.always = None
    clock.advance(KEPT_MS)
    assert client.register("s", RegisteredSchema(SCHEMA)) == 1


def test_refusals_are_let_go_of() -> None:
    """The ids of malformed records may be any; the oldest goes first."""

    def refuse() -> None:
        raise DataError("No.")

    refusals = Refusals()
    for number in range(3_000):
        with pytest.raises(DataError):
            refusals.of(number, refuse)
    assert len(refusals) == 1_000
    assert refusals.of(0, lambda: "asked") == "asked"
    with pytest.raises(DataError, match="No"):
        refusals.of(2_999, lambda: None)


def test_a_user_without_rights_is_told_at_once() -> None:
    """With the setting to look at; the password is not in the message."""
    memory = MemoryRegistry()
    memory.fails = [httpx.Response(401)]
    with pytest.raises(RegistryError, match=r"basic\.auth\.user\.info"):
        registry(memory).schema(1)
    assert len(memory.asked) == 1


def test_the_next_address_is_asked_where_one_does_not_answer() -> None:
    """In the order of the setting."""
    memory = MemoryRegistry()
    number = memory.add(SCHEMA)
    memory.fails = [httpx.ConnectError("refused")]
    client = registry(memory, schema_registry_url="http://a:1,http://b:2/")
    assert client.schema(number).text == SCHEMA
    assert [str(request.url.host) for request in memory.requests] == ["a", "b"]


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        ({"schema_registry_url": "http://u:p%20w@a:1"}, "Basic " + base64.b64encode(b"u:p w").decode()),
        (
            {"basic_auth_credentials_source": "USER_INFO", "basic_auth_user_info": "u:p:w"},
            "Basic " + base64.b64encode(b"u:p:w").decode(),
        ),
        ({"bearer_auth_token": "t"}, "Bearer t"),
    ],
)
def test_credentials_are_sent(texts: dict[str, Any], expected: str) -> None:
    """Of the address, of the settings, or as a token; none is in the address that is asked."""
    memory = MemoryRegistry()
    registry(memory, **texts).schema(memory.add(SCHEMA))
    assert memory.requests[0].headers["Authorization"] == expected
    assert "@" not in str(memory.requests[0].url)


def test_an_incompatible_schema_is_refused_with_the_registry_s_words() -> None:
    """The message names the subject."""
    memory = MemoryRegistry()
    memory.fails = [httpx.Response(409, json={"message": "READER_FIELD_MISSING_DEFAULT_VALUE"})]
    with pytest.raises(DataError, match=r"orders-value as incompatible.*READER_FIELD"):
        registry(memory).register("orders-value", RegisteredSchema(SCHEMA))


def test_a_schema_is_registered_and_found() -> None:
    """By its subject, whatever the subject's name."""
    memory = MemoryRegistry()
    client = registry(memory)
    number = client.register("a b/c-value", RegisteredSchema(SCHEMA))
    assert client.find("a b/c-value", RegisteredSchema(SCHEMA)) == number
    with pytest.raises(DataError, match="does not take"):
        client.find("other", RegisteredSchema(SCHEMA))


@pytest.mark.parametrize(
    "texts",
    [{"schema_registry_url": "registry:8081"}, {"basic_auth_credentials_source": "USER_INFO"}],
)
def test_settings_that_cannot_work_are_refused(texts: dict[str, Any]) -> None:
    """Before anything is asked."""
    with pytest.raises(OptionsError):
        registry(MemoryRegistry(), **texts)


@pytest.mark.parametrize("status", [401, 403, 302, 404])
def test_what_a_registry_refuses_is_no_outage(status: int) -> None:
    """No wait mends it: the connector is FAILED, as where a broker refuses a login, though it is tried again."""
    asked = registry(httpx.MockTransport(lambda _: httpx.Response(status, json={"message": "no"})))
    with pytest.raises(RegistryRefusedError) as caught:
        asked.schema(7)
    assert (is_outage(caught.value), caught.value.retriable) == (False, True)


NO_PATH = httpx.Response(404, json={"error_code": 404, "message": "HTTP 404 Not Found"})


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "answer", [NO_PATH, *(httpx.Response(status, text="<h1>no</h1>") for status in (400, 413, 414))]
)
def test_what_a_registry_has_no_path_for_is_an_error_of_the_record(way: str, answer: httpx.Response) -> None:
    """A record makes the path and the body; that the address is a registry's, its list of types shows."""
    memory = MemoryRegistry()
    memory.fails = [answer]
    with pytest.raises(DataError, match=f"does not take the request for .*: {answer.status_code}"):
        WAYS[way](registry(memory))
    assert memory.asked[1:] == ["GET /schemas/types"]


LARGE = b" " * (MAX_BYTES + 1)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("status", [200, 409, 422])
def test_an_answer_that_is_too_large_is_an_error_of_the_record_if_a_registry_gives_it(way: str, status: int) -> None:
    """A record names the schema, or has the one that an error quotes: no wait makes it smaller."""
    memory = MemoryRegistry()
    memory.fails = [httpx.Response(status, content=LARGE)]
    with pytest.raises(DataError, match=f"answers the request for .* with {status} and more than 4 MiB"):
        WAYS[way](registry(memory))
    assert memory.asked[1:] == ["GET /schemas/types"]


@pytest.mark.parametrize("answer", [httpx.Response(200, content=LARGE), httpx.Response(503, content=LARGE)])
def test_a_large_page_of_a_proxy_is_an_outage(answer: httpx.Response) -> None:
    """Nothing there answers as a registry does, or it says itself that it cannot answer now."""
    memory = MemoryRegistry()
    memory.always = answer
    with pytest.raises(RegistryError) as caught:
        registry(memory).schema(1)
    assert is_outage(caught.value)
    memory.always, memory.fails = None, [httpx.Response(503, content=LARGE)] * 9
    with pytest.raises(RegistryError):
        registry(memory).schema(1)


@pytest.mark.parametrize("way", ["find", "register"])
def test_a_schema_that_could_not_be_read_back_is_not_registered(way: str) -> None:
    """Registries just hang up on such a request, which would be an outage for good."""
    memory = MemoryRegistry()
    with pytest.raises(DataError, match="more than 4 Mi characters"):
        getattr(registry(memory), way)("s", RegisteredSchema("x" * (MAX_BYTES + 1)))
    assert memory.asked == []


@pytest.mark.parametrize("subject", ["", ".", "..", "x" * 70_000, "%" * 4_000, "\ud800"])
def test_a_subject_that_makes_no_path_is_an_error_of_the_record(subject: str) -> None:
    """With RecordNameStrategy it is a name that a record brings: `..` would ask for another path."""
    memory = MemoryRegistry()
    client = registry(memory)
    ways: list[Callable[[], Any]] = [
        lambda: client.version(subject, 1),
        lambda: client.find(subject, RegisteredSchema(SCHEMA)),
        lambda: client.register(subject, RegisteredSchema(SCHEMA)),
        lambda: client.global_id(subject, RegisteredSchema(SCHEMA)),
    ]
    for way in ways:
        with pytest.raises(DataError, match="subject"):
            way()
    assert not memory.asked


@pytest.mark.parametrize("before", range(60, 300, 12))
def test_no_part_of_a_credential_is_shown_of_a_name_that_a_registry_answers_with(before: int) -> None:
    """It is hidden before the name is cut, wherever the cut is."""
    name = "x" * before + "regPass99regPass99"
    url = "http://u:regPass99regPass99@a:1/apis/ccompat/v7"
    reference = {"name": "r", "artifactId": name, "groupId": name, "version": "1"}
    memory = MemoryRegistry()
    memory.fails = [httpx.Response(200, text=SCHEMA), httpx.Response(200, json=[reference])]
    errors: list[Exception] = []
    with pytest.raises(DataError, match=r"The schema refers to x+") as found:
        registry(memory, schema_registry_url=url).schema_by_global_id(1, "AVRO")
    errors.append(found.value)
    for answer, kind in ((None, DataError), (NO_PATH, RegistryError), (httpx.Response(500), RegistryError)):
        memory.always = answer
        with pytest.raises(kind) as other:
            registry(memory, schema_registry_url=url).version(name, 1)
        errors.append(other.value)
    assert not [error for error in errors if "regP" in repr(vars(error)) + str(error)]
