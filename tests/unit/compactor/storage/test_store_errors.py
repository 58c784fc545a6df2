"""A store that repeats what it was sent: its credentials are in no error, and an error is short."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any

import pytest

from compactor.errors import StorageError
from compactor.storage.base import Storage
from compactor.storage.limits import StoreTimes
from compactor.storage.locations import StoreOptions, open_storage
from compactor.storage.store_errors import StoreCredentials
from tests.support.echo_server import echo_server

SECRETS = ("AKIA-id-4711", "secret-4711", "to/ken+4711", "si/gna+ture4711")
S3 = {"region": "r", "access_key_id": SECRETS[0], "secret_access_key": SECRETS[1], "session_token": SECRETS[2]}
AZURE = {"account_name": "a", "sas_key": "sv=2020&sig=si%2Fgna%2Bture4711"}


STATUS = "Error performing POST http://t/ in 1ms - Server returned non-2xx status code: "
DEBUG = '\n\nDebug source:\nBody { "4711" }'


def shown_of(said: str) -> str:
    """Returns what is left of an error that says `said`."""
    error = OSError(said)
    with suppress(OSError), StoreCredentials((), {}).hidden():
        raise error
    return str(error)


@pytest.fixture
def endpoint() -> Iterator[str]:
    said = "<Error>\n<Code>AccessDenied</Code>\n<Message>the-body"
    with echo_server(lambda path, headers: (403, f"{said} {headers} {path}{'x' * 5_000}</Message>".encode())) as url:
        yield url


def leaks(text: str) -> list[str]:
    return [part for part in (*SECRETS, "gna%2Bture", "to%2Fken", "the-body", "Signature") if part in text]


@pytest.mark.parametrize("asks", [lambda store: list(store.list("")), lambda store: store.create("x", b"1")])
@pytest.mark.parametrize(
    "at",
    [
        ("s3://b/p", lambda url: {"s3": {**S3, "endpoint": url}, "allow_http": frozenset(["s3"])}),
        ("az://c/p", lambda url: {"az": {**AZURE, "endpoint": url}, "allow_http": frozenset(["az"])}),
    ],
)
def test_no_error_of_a_store_shows_what_was_sent_to_it(
    endpoint: str, at: tuple[str, Callable[[str], Any]], asks: Callable[[Storage], object]
) -> None:
    """Neither its message nor a traceback with what it was raised from."""
    location, options = at
    store = open_storage(location, StoreOptions(**options(endpoint), times=StoreTimes(retry_s=0)))
    with pytest.raises(StorageError) as caught:
        asks(store)
    assert "403 Forbidden: AccessDenied." in caught.value.message
    assert leaks("".join(traceback.format_exception(caught.value))) == []
    assert len(caught.value.message) < 1_500


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        (
            '400 Bad Request: {"error": "invalid_client", "error_description": "4711"}',
            "400 Bad Request: invalid_client",
        ),
        ('404 Not Found: {"code": 404, "errors": [{"reason": "notFound"}], "m": "4711"}', "404 Not Found: notFound"),
        ("502 Bad Gateway: <p>\n4711", "502 Bad Gateway"),
    ],
)
def test_an_answer_is_shown_by_its_status_and_its_code(said: str, shown: str) -> None:
    """Nothing else that a store, a proxy or a server of tokens has written."""
    assert shown_of(f"{STATUS}{said}{DEBUG}") == f"{STATUS}{shown}"


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("Server returned error response: <x>4711</x>", "Server returned error response"),
        ("DeleteObjects request failed for key k: 4711 (code: SlowDown)", "DeleteObjects request failed: SlowDown"),
        (
            "HTTP error: following redirect for url (http://h/?t=4711): too many",
            "HTTP error: following redirect: too many",
        ),
        ('invalid type: string "4711 "x", expected u64', "invalid type: string , expected u64"),
        ("Invalid last modified '4711'", "Invalid last modified "),
        ('Failed to parse value for CONTENT_RANGE header: "4711"', "Failed to parse value for CONTENT_RANGE header: "),
        ("expected `</x>`, but `</4711>` was found", "expected  was found"),
        ('invalid path: Path "//4711" has an empty segment', "invalid path: Path  has an empty segment"),
        ("the store's object k doesn't exist", "the store's object k doesn't exist"),
        ("HTTP error: builder error", "HTTP error: builder error"),
    ],
)
def test_an_error_without_a_status_repeats_no_answer(said: str, shown: str) -> None:
    """What obstore says itself stays."""
    assert shown_of(said) == shown


def test_credentials_of_the_environment_are_hidden_too() -> None:
    """Object stores are also reached with what the clouds' own tools use; the name of a file is none."""
    environ = {
        "AWS_SESSION_TOKEN": "token-4711",
        "AWS_WEB_IDENTITY_TOKEN_FILE": "/var/token",
        "OTHER_TOKEN": "other-4711",
    }
    with pytest.raises(OSError, match="hidden") as caught, StoreCredentials((), environ).hidden():
        raise OSError("token-4711 of /var/token, other-4711")
    assert str(caught.value) == "[hidden] of /var/token, other-4711"


class PanicException(BaseException):
    """What a library made with pyo3 raises when its Rust panics: no Exception, and known by its name alone."""


class RustPanic(Exception):  # noqa: N818  # its name
    """The same of what is awaited, as lists are."""


@pytest.mark.parametrize("panic", [PanicException, RustPanic])
def test_a_panic_of_the_stores_client_is_an_ordinary_error(panic: type[BaseException]) -> None:
    """Nothing that handles errors would take it, so it would end a thread; its words may be a part of an answer."""
    with pytest.raises(ValueError, match="the store's client has failed") as caught, StoreCredentials((), {}).hidden():
        raise panic("called `Option::unwrap()` on the-body")
    assert leaks("".join(traceback.format_exception(caught.value))) == []
    with pytest.raises(KeyboardInterrupt), StoreCredentials((), {}).hidden():
        raise KeyboardInterrupt


@pytest.mark.parametrize("made", ["Mon, 01 Jan 262142 00:00:00 GMT", "Fri, 31 Dec 9999 23:59:59 -2359"])
def test_a_time_that_no_clock_has_is_an_error_of_the_store(made: str) -> None:
    """Of each request that is answered with when an object was made."""

    def answer(_path: str, _headers: Mapping[str, str]) -> tuple[int, bytes, Mapping[str, str]]:
        return 200, b"{}", {"Last-Modified": made, "ETag": "e"}

    with echo_server(answer) as url:
        options = StoreOptions(s3={**S3, "endpoint": url}, allow_http=frozenset(["s3"]), times=StoreTimes(retry_s=0))
        store = open_storage("s3://b/p", options)
        for ask in (lambda: store.exists("x"), lambda: store.lock("x"), lambda: store.replace("x", b"{}", b"2")):
            with pytest.raises(StorageError):
                ask()
