"""What an error of the worker's own quotes of a request is shown: if it were hidden, a right guess would be known."""

from __future__ import annotations

import json
from typing import Any

import pytest
from fastapi import Request

from compactor.errors import KeyfoldError, StorageError
from connectors.errors import BusyError
from connectors.known_values import remember_setting
from connectors.rest import bodies, errors

SECRET, OTHER = "Geheim-4711", "Anders-4722"


def request(path: str, body: str | None = None) -> Request:
    """Returns a request for `path`, with a body that was read."""
    scope: dict[str, Any] = {
        "type": "http",
        "method": "PUT",
        "scheme": "http",
        "path": path,
        "query_string": b"",
        "headers": [],
        "server": ("127.0.0.1", 8083),
    }
    made = Request(scope)
    if body is not None:
        setattr(made.state, bodies.SENT, body)
    return made


def told(asked: Request, error: KeyfoldError) -> str:
    """Returns the message of the answer."""
    return str(json.loads(bytes(errors.of_keyfold(asked, error).body))["message"])


@pytest.mark.parametrize("kind", [StorageError, BusyError])
@pytest.mark.parametrize("in_body", [False, True])
def test_a_guess_is_told_as_it_was_sent(kind: type[KeyfoldError], in_body: bool) -> None:
    """Whether it is right or not."""
    remember_setting(SECRET, is_secret=True, over_rest=False)
    for guess in (SECRET, OTHER):
        body = json.dumps({"name": guess}) if in_body else None
        asked = request("/connectors" if in_body else f"/connectors/{guess}/config", body)
        assert (
            told(asked, kind(f"Could not write connectors/{guess}.json."))
            == f"Could not write connectors/{guess}.json."
        )


def test_a_secret_that_was_not_sent_is_hidden() -> None:
    """The worker's own error may hold one."""
    remember_setting(SECRET, is_secret=True, over_rest=False)
    assert told(request("/connectors/a", "{}"), StorageError(f"It says {SECRET}.")) == "It says [hidden]."
