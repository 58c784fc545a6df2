"""The registry's client keeps what never changes, retries what does not answer, and says what is refused."""

from __future__ import annotations

import base64
from typing import Any

import httpx
import pytest

from connectors.errors import DataError, RegistryError
from connectors.options import OptionsError, read
from connectors.registry.schema_registry import MISSING_S, TRIES, RegisteredSchema, SchemaRegistry
from connectors.registry.settings import OPTIONS, registry_settings
from tests.support.memory.schema_registry import MemoryRegistry

SCHEMA = '{"type":"string"}'


class Clock:
    """A clock that stands until it is set, and sleeps in no time."""

    now = 0.0

    def __init__(self) -> None:
        self.slept: list[float] = []

    def __call__(self) -> float:
        """Returns its time."""
        return self.now

    def sleep(self, seconds: float) -> None:
        """Moves it."""
        self.slept.append(seconds)
        self.now += seconds


def registry(memory: httpx.BaseTransport, clock: Clock | None = None, **texts: Any) -> SchemaRegistry:
    """Returns a client of `memory`."""
    given = {"schema.registry.url": "http://a:1", **{name.replace("_", "."): text for name, text in texts.items()}}
    clock = clock or Clock()
    return SchemaRegistry(registry_settings(read(OPTIONS, given)), transport=memory, monotonic=clock, sleep=clock.sleep)


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
    clock.now += MISSING_S
    assert client.schema(1).text == SCHEMA


def test_a_registry_that_is_away_is_asked_again() -> None:
    """A connection that fails, 500 and 429 say nothing of the schema."""
    memory, clock = MemoryRegistry(), Clock()
    client, number = registry(memory, clock), memory.add(SCHEMA)
    memory.fails = [httpx.ConnectError("refused"), httpx.Response(500), httpx.Response(429)]
    assert client.schema(number).text == SCHEMA
    assert len(memory.asked) == 4
    assert clock.slept == [0.1, 0.2, 0.4]


def test_a_registry_that_stays_away_is_no_error_of_a_record() -> None:
    """Nothing is known then, and it is asked again later."""
    memory = MemoryRegistry()
    memory.fails = [httpx.ReadTimeout("late")] * TRIES
    clock = Clock()
    with pytest.raises(RegistryError, match="does not answer"):
        registry(memory, clock).schema(memory.add(SCHEMA))
    assert clock.slept == [0.1, 0.2, 0.4]


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
    assert client.latest("a b/c-value") == (number, RegisteredSchema(SCHEMA))
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
