"""Asks a worker over REST: the thin client of `keyfold connectors`.

Of an answer no more is read than the command shows, as any server may answer.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator, Mapping, Sequence
from http import HTTPStatus
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeVar

import httpx
import msgspec
from msgspec import Struct

from compactor.decode_errors import UNDECODABLE, why
from compactor.errors import KeyfoldError
from compactor.json_types import converted_as, decoded_as
from compactor.secret_forms import HIDDEN, forms_of, without
from connectors.config.fields import is_connector_name
from connectors.config.secrets import is_secret
from connectors.credentials import is_address, login, quoted, secrets_in, without_logins
from connectors.errors import BusyError, ConfigError, ConflictError, NoConnectorError, UnreachableError, UsageError
from connectors.registry.http_client import HttpAnswer, HttpClient, HttpRequest

Answer = TypeVar("Answer")

TIMEOUT_S: Final = 90.0
"""How long (s) an answer may take: as long as Kafka Connect's own do."""
CONNECT_S: Final = 5.0
ANSWER_BYTES: Final = 64 << 20
"""The largest answer that is read: a worker makes none above (`answers.py`)."""
_VALUES: Final = 4_000_000
"""The most values of an answer, of which an object counts as three: they take up to 300 MB of memory."""
_ERRORS: Final[dict[int, type[KeyfoldError]]] = {
    HTTPStatus.BAD_REQUEST: ConfigError,
    HTTPStatus.UNAUTHORIZED: UsageError,
    HTTPStatus.FORBIDDEN: UsageError,
    HTTPStatus.NOT_FOUND: NoConnectorError,
    HTTPStatus.CONFLICT: ConflictError,
    HTTPStatus.SERVICE_UNAVAILABLE: BusyError,
}
_ACTIONS: Final[dict[int, str]] = {
    HTTPStatus.UNAUTHORIZED: "Give --user NAME; its password is asked for, or taken from KEYFOLD_REST_PASSWORD.",
    HTTPStatus.FORBIDDEN: "Ask as a user with the role admin.",
    HTTPStatus.NOT_FOUND: "keyfold connectors list shows those that there are.",
}
_WRITE_LOGIN: Final = (
    "Write the address as http://HOST:PORT; in a user or password before it a blank is %20, a slash %2F, an @ %40."
)
_SAID: Final = 10_000
"""Characters that are shown of what a worker says of an error: it lists every fault of a config."""

_NOT_IN: Final = {
    "--cacert": "it holds no certificates",
    "--cert": "it does not hold a certificate and its key",
    "--key": "it is not the key of --cert",
}


class _Refusal(Struct, frozen=True):
    """What a worker says of an error."""

    message: str


class ShownState(Struct, frozen=True):
    """A connector's state, the worker that runs it, and why it is FAILED."""

    state: str
    worker_id: str
    trace: str | None = None


class ShownStatus(Struct, frozen=True):
    """The state of a connector and of its tasks."""

    connector: ShownState
    tasks: list[Any]


class ShownInfo(Struct, frozen=True):
    """A connector's config; secrets are hidden."""

    config: dict[str, str]


class ShownRun(Struct, frozen=True):
    """A connector in the list of all states."""

    status: ShownStatus


class ShownConnector(ShownRun, frozen=True):
    """A connector in the list of all states and configs."""

    info: ShownInfo


class ShownPartition(Struct, frozen=True):
    """A partition of a source topic."""

    kafka_topic: str
    kafka_partition: int


class ShownOffset(Struct, frozen=True):
    """The next source offset."""

    kafka_offset: int


class ShownPosition(Struct, frozen=True):
    """The offset up to which a partition has been published."""

    partition: ShownPartition
    offset: ShownOffset


class ShownPositions(Struct, frozen=True):
    """The offsets up to which a connector has published its partitions."""

    offsets: list[ShownPosition]


class RestClient:
    """Asks the worker at `url`; `auth` is a user and its password, `verify` what `tls` gives. Raises UsageError."""

    def __init__(self, url: str, auth: tuple[str, str] | None = None, verify: ssl.SSLContext | bool = True) -> None:  # noqa: FBT001,FBT002  # httpx's own
        if not _is_address(url):
            action = _WRITE_LOGIN if "@" in url else "Write http://HOST:PORT."
            raise UsageError(f"--url {quoted(url, HIDDEN)} is no address of a worker.", action)
        self.url = url.rstrip("/")
        # What an answer is shown without: it may repeat the login.
        self._login = (*(login(*auth) if auth else ()), *secrets_in(url, is_secret=False))
        self._where = without_logins(self.url, HIDDEN)
        client = httpx.Client(
            auth=auth,
            # Without TLS no certificates are loaded, which takes longer than the answer; redirections are not followed.
            verify=verify if httpx.URL(self.url).scheme == "https" else False,
            trust_env=False,
        )
        self._client = HttpClient(client, ANSWER_BYTES, CONNECT_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        self._client.close()

    def get(self, path: str) -> Any:
        """Returns the answer to a GET. Raises UnreachableError; what the answer's code says otherwise."""
        return self._ask("GET", path)

    def text(self, path: str) -> str:
        """Returns the answer to a GET as text, as /metrics gives it. Raises as `get` does."""
        sent = forms_of(*self._login)
        return without(self._answer("GET", path, None, sent).body.decode(errors="replace"), sent)

    def read(self, path: str, of: type[Answer]) -> Answer:
        """Returns the answer to a GET as `of` has it. Raises UnreachableError, also for an answer of another form."""
        return self.converted(self.get(path), path, of)

    def converted(self, answer: Any, path: str, of: type[Answer]) -> Answer:
        """Returns the `answer` of `path` as `of` has it. Raises UnreachableError for one of another form."""
        try:
            return converted_as(answer, of)
        except msgspec.ValidationError:
            raise self.no_worker(f"its answer to GET {path} has another form") from None

    def send(self, method: str, path: str, body: Any = None) -> Any:
        """Sends a request, with a JSON `body` if there is one; returns the answer, None if it has no body.

        No text of the answer shows the secrets of the config in the body.
        """
        return self._ask(method, path, body)

    def _ask(self, method: str, path: str, body: Any = None) -> Any:
        sent = forms_of(*self._login, *_secrets_of(body))
        answer = self._answer(method, path, body, sent)
        try:
            return _hidden(_decoded(answer.body), sent) if answer.body else None
        except (msgspec.ValidationError, RecursionError) as error:
            raise self.no_worker(f"its answer is too much: {why(error)}") from None
        except UNDECODABLE:
            raise self.no_worker("its answer is not JSON") from None

    def _answer(self, method: str, path: str, body: Any, sent: Sequence[str]) -> HttpAnswer:
        """Returns an answer of success; what an error says of it is without what was `sent`."""
        try:
            answer = self._client.ask(HttpRequest(method, f"{self.url}{path}", {}, body), TIMEOUT_S)
        except httpx.HTTPError as error:
            raise UnreachableError(
                f"No worker answers at {self._where}: {without(str(error), sent)[:_SAID]}.",
                "Start one with listeners, or name another address with --url.",
            ) from None
        if not httpx.codes.is_success(answer.status):
            raise _error(answer, sent)
        return answer

    def no_worker(self, why: str) -> UnreachableError:
        """Returns the error that says `why` what answers is no worker; its address is shown without a login."""
        return UnreachableError(
            f"What answers at {self._where} is no worker: {why}.", "Name the worker's address with --url."
        )


def _secrets_of(body: Any) -> Iterator[str]:
    """Yields the secrets of a config, or of one that is sent with its connector's name."""
    if isinstance(body, Mapping):
        for name, value in body.items():
            yield from secrets_in(value, is_secret=is_secret(name)) if isinstance(value, str) else _secrets_of(value)


def _hidden(answer: Any, sent: Sequence[str]) -> Any:
    """Returns `answer` without what was `sent` in its texts, names and numbers."""
    if isinstance(answer, dict):
        return {without(name, sent): _hidden(value, sent) for name, value in answer.items()}
    if isinstance(answer, list):
        return [_hidden(value, sent) for value in answer]
    if isinstance(answer, str):
        return without(answer, sent)
    is_sent = isinstance(answer, int | float) and not isinstance(answer, bool) and str(answer) in sent
    return HIDDEN if is_sent else answer


def _decoded(body: bytes) -> Any:
    """Decodes JSON. Raises UNDECODABLE, also for more values than fit into memory: a list of three bytes takes 60."""
    if body.count(b",") + body.count(b"[") + 3 * body.count(b"{") > _VALUES:
        raise msgspec.ValidationError(f"it has more than {_VALUES:,} values")
    return msgspec.json.decode(body)


def _error(answer: HttpAnswer, sent: Sequence[str]) -> KeyfoldError:
    try:
        message = decoded_as(answer.body, _Refusal).message
    except UNDECODABLE:
        message = f"The worker answered {answer.status} {httpx.codes.get_reason_phrase(answer.status)}".rstrip() + "."
    kind = _ERRORS.get(answer.status, KeyfoldError)
    return kind(without(message, sent)[:_SAID], _ACTIONS.get(answer.status, ""))


def _is_address(url: str) -> bool:
    try:
        httpx.URL(url)
    except (ValueError, httpx.InvalidURL):
        return False
    return is_address(url)


def tls(cacert: Path | None, cert: Path | None, key: Path | None) -> ssl.SSLContext | bool:
    """Trusts the certificates in `cacert` and no others, and shows that in `cert`; its key is in `key`, or in `cert`.

    Returns True if none is given: then the certificates count that come with httpx. Raises UsageError.
    """
    if cert is None and key is not None:
        raise UsageError(f"--key {key} belongs to no certificate.", "Give --cert too.")
    if cacert is None and cert is None:
        return True
    option, file = "--cacert", cacert
    try:
        context = httpx.create_ssl_context() if cacert is None else ssl.create_default_context(cafile=cacert)
        if cert is not None:
            option, file = ("--cert", cert) if key is None else ("--key", key)
            context.load_cert_chain(cert, key)
    except OSError as error:  # an SSLError is one
        why = error.strerror if not isinstance(error, ssl.SSLError) else _NOT_IN[option]
        raise UsageError(f"{option} {file} cannot be used: {why}.", "Name a file in PEM.") from None
    return context


def path_of(connector: str, *rest: str) -> str:
    """Returns the path of a connector, or of something below it.

    Raises NoConnectorError if `connector` is no connector's name: as a part of a path it could lead to another one.
    """
    if not is_connector_name(connector):
        raise NoConnectorError(f"{connector!r} is no connector's name.", _ACTIONS[HTTPStatus.NOT_FOUND])
    return "/".join(("/connectors", connector, *rest))
