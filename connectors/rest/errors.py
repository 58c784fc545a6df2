"""Turns errors into answers in Kafka Connect's form: `{"error_code": STATUS, "message": TEXT}`."""

from __future__ import annotations

from http import HTTPStatus
from typing import Final
from urllib.parse import unquote

import structlog
from fastapi import Request
from fastapi.responses import JSONResponse, PlainTextResponse, Response
from starlette.exceptions import HTTPException
from starlette.routing import Match

from compactor.errors import KeyfoldError, OffsetChangeError, StorageError
from connectors.config.errors import Fault, FaultyConfigError
from connectors.config.secrets import logged_text, printable_text
from connectors.errors import (
    DEFECT,
    BusyError,
    ConfigError,
    ConflictError,
    NoConnectorError,
    NoThreadError,
    RegistryRefusedError,
    UnreachableError,
    UsageError,
    is_outage,
)
from connectors.rest.bodies import SENT
from connectors.rest.slow_calls import RETRY_AFTER_S

_log = structlog.get_logger()

_LONGEST: Final = 16 << 10
"""Characters of a message: 100 faults of a config. To look for secrets takes the interpreter's lock for 10 ms then, and
a request may have sent a megabyte that its error quotes."""
_LONGEST_LINE: Final = 2_000
"""Characters of a line of it, which is a fault: a long one leaves room for others."""
_LONGEST_WORD: Final = 250
"""Characters of a word in a longer line: as many as a topic's name has."""

_NO_THREAD: Final = "can't start new thread"
"""What Python says if a process may have no more threads."""
_RAISE_LIMIT: Final = "Nothing was done. Raise the limit of processes and threads (ulimit -u, pids of the container)."

_CODES: Final[tuple[tuple[type[KeyfoldError], HTTPStatus], ...]] = (
    (NoConnectorError, HTTPStatus.NOT_FOUND),
    (ConflictError, HTTPStatus.CONFLICT),
    (UsageError, HTTPStatus.BAD_REQUEST),
    (ConfigError, HTTPStatus.BAD_REQUEST),
    (OffsetChangeError, HTTPStatus.BAD_REQUEST),
    (StorageError, HTTPStatus.INTERNAL_SERVER_ERROR),
    (UnreachableError, HTTPStatus.INTERNAL_SERVER_ERROR),
    (RegistryRefusedError, HTTPStatus.BAD_GATEWAY),
)
_READS: Final = ("GET", "HEAD")


def answer(code: int, message: str, sent: str = "") -> JSONResponse:
    """Returns the answer of an error; secrets in `message` are hidden.

    Errors of the worker's own may quote what a placeholder stands for, which is hidden too. Those of a request quote
    the request, in which what is hidden would tell a guess that is right; `sent` is what the worker's own may quote of
    it, such as a connector's name.
    """
    return JSONResponse({"error_code": code, "message": text_of(code, message, sent)}, code)


def text_of(code: int, message: str, sent: str = "") -> str:
    """Returns the message of an error as `answer` shows it."""
    text = _cut(message)
    return logged_text(text, sent) if code >= HTTPStatus.INTERNAL_SERVER_ERROR else printable_text(text)


def _cut(message: str) -> str:
    """Returns as much of a message as is shown."""
    if len(message) <= _LONGEST_LINE:
        return message
    return _beginning(
        "\n".join(_beginning(_short_words(line), _LONGEST_LINE) for line in message.split("\n")), _LONGEST
    )


def _short_words(line: str) -> str:
    """Returns a line without its long words, which are values: what is wrong with them comes after them."""
    if len(line) <= _LONGEST_LINE:
        return line
    return " ".join(word if len(word) <= _LONGEST_WORD else "…" for word in line.split(" "))


def _beginning(text: str, most: int) -> str:
    """Returns the first words of a text: one that is cut would be no secret any more, so it goes as a whole."""
    return text if len(text) <= most else f"{text[:most].rpartition(' ')[0]} …"


def of_keyfold(request: Request, error: Exception) -> Response:
    """Answers for an error of ours, with what to do next."""
    assert isinstance(error, KeyfoldError)
    code = code_of(request, error)
    if code == HTTPStatus.SERVICE_UNAVAILABLE:
        return busy(error, sent_with(request))
    message = invalid(error.faults) if isinstance(error, FaultyConfigError) else str(error)
    return answer(code, message, sent_with(request))


def code_of(request: Request, error: KeyfoldError) -> HTTPStatus:
    """Returns the status of an error of ours; 503: the request is to be sent again later."""
    if isinstance(error, BusyError) or (request.method in _READS and is_outage(error)):
        return HTTPStatus.SERVICE_UNAVAILABLE
    return next((code for kind, code in _CODES if isinstance(error, kind)), HTTPStatus.INTERNAL_SERVER_ERROR)


def refusal(request: Request, error: KeyfoldError) -> tuple[HTTPStatus, str]:
    """Returns status and text of an error of ours for a page, with what to do next."""
    code = code_of(request, error)
    return code, text_of(code, str(error), sent_with(request))


def sent_with(request: Request) -> str:
    """Returns what a request has brought: its path, its query, and its body if that was read."""
    return f"{unquote(str(request.url))} {getattr(request.state, SENT, '')}"


def busy(error: KeyfoldError, sent: str = "") -> JSONResponse:
    """Answers for a worker that takes no more of what waits now, or for an outage of what would have to be read.

    Nothing was changed; the header says when to ask again.
    """
    later = answer(HTTPStatus.SERVICE_UNAVAILABLE, str(error), sent)
    later.headers["Retry-After"] = str(RETRY_AFTER_S)
    return later


def of_http(request: Request, error: Exception) -> Response:
    """Answers for an error of the framework; OPTIONS is answered with the methods that a path has."""
    assert isinstance(error, HTTPException)
    headers = {}
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        headers["Allow"] = methods = ", ".join(sorted(_methods(request)))
        if request.method == "OPTIONS":
            return PlainTextResponse(methods, headers=headers)
    phrase = HTTPStatus(error.status_code).phrase
    told = error.detail if error.detail != phrase else f"HTTP {error.status_code} {phrase}"
    response = answer(error.status_code, told)
    response.headers.update(headers)
    return response


def of_disconnect(_: Request, __: Exception) -> Response:
    """Answers for a client that went before its request was whole: it reads no answer."""
    return answer(HTTPStatus.BAD_REQUEST, "The request was not sent to its end.")


async def of_runtime(_: Request, error: Exception) -> Response:
    """Answers if no thread could be started, as some answers are made on threads of the framework's.

    It takes none itself. Any other error is raised again: it is a defect.
    """
    if str(error) != _NO_THREAD:
        raise error
    return busy(NoThreadError("The worker could start no thread for the request.", _RAISE_LIMIT))


def of_defect(request: Request, error: Exception) -> Response:
    """Answers for what should never happen; the log has the rest."""
    _log.error("request failed", method=request.method, path=request.url.path, exc_info=error)
    return answer(HTTPStatus.INTERNAL_SERVER_ERROR, DEFECT)


def invalid(faults: tuple[Fault, ...]) -> str:
    """Returns Kafka Connect's text for a config with `faults`, which people and tests look for."""
    lines = "\n".join(map(sentence, faults))
    return (
        f"Connector configuration is invalid and contains the following {len(faults)} error(s):\n{lines}\nYou can also "
        "find the above list of errors at the endpoint `/connector-plugins/{connectorType}/config/validate`"
    )


def sentence(fault: Fault) -> str:
    """Returns a fault as Connect says it: a missing key, a value that is not allowed; any other in our words."""
    if fault.missing:
        return f'Missing required configuration "{fault.key}" which has no default value.'
    if fault.value is not None:
        return f"Invalid value {fault.value} for configuration {fault.key}: {fault.text}"
    return f"{fault.key}: {fault.text}" if fault.key else fault.text


def _methods(request: Request) -> set[str]:
    routes, scope = request.app.routes, request.scope
    methods = {
        method
        for method in ("DELETE", "GET", "PATCH", "POST", "PUT")
        if any(route.matches({**scope, "method": method})[0] is Match.FULL for route in routes)
    }
    return methods | {"OPTIONS"} | ({"HEAD"} if "GET" in methods else set())
