"""A store that repeats what it was sent: its credentials are in no error, and an error is short."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from compactor.errors import StorageError
from compactor.storage.base import Storage
from compactor.storage.locations import StoreOptions, open_storage
from compactor.storage.object_client import StoreTimes
from compactor.storage.store_errors import StoreCredentials
from tests.support.echo_server import echo_server

SECRETS = ("AKIA-id-4711", "secret-4711", "to/ken+4711", "si/gna+ture4711")
S3 = {"region": "r", "access_key_id": SECRETS[0], "secret_access_key": SECRETS[1], "session_token": SECRETS[2]}
AZURE = {"account_name": "a", "sas_key": "sv=2020&sig=si%2Fgna%2Bture4711"}


@pytest.fixture
def endpoint() -> Iterator[str]:
    with echo_server(lambda path, headers: (403, f"<Message>{headers} {path}{'x' * 5_000}</Message>".encode())) as url:
        yield url


def leaks(text: str) -> list[str]:
    return [part for part in (*SECRETS, "gna%2Bture", "to%2Fken") if part in text]


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
    assert "[hidden]" in caught.value.message
    assert leaks("".join(traceback.format_exception(caught.value))) == []
    assert len(caught.value.message) < 1_500


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
