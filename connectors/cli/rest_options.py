"""Says which worker the commands of `keyfold connectors` ask, and as whom: options that they all take.

Those of certificates have curl's names.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from connectors.cli.options import BOOTSTRAP_VARIABLE, DEFAULT_WORKER_FILES, WorkerOption, worker_of
from connectors.errors import UsageError

if TYPE_CHECKING:
    from connectors.config.worker import WorkerConfig
    from connectors.rest.client import RestClient

DEFAULT_URL: Final = "http://127.0.0.1:8083"
URL_VARIABLE: Final = "KEYFOLD_REST_URL"
PASSWORD_VARIABLE: Final = "KEYFOLD_REST_PASSWORD"  # noqa: S105  # its name
_LOOPBACKS: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104  # it is what a listener may be on
_GIVE_URL: Final = "Give --url with the address that the worker has printed when it began: listening on URL."

UrlOption = Annotated[
    str | None,
    typer.Option(
        "--url",
        help="The worker's address; left out: that of the worker file.",
        metavar="URL",
        envvar=URL_VARIABLE,
        show_envvar=False,
    ),
]
UserOption = Annotated[str | None, typer.Option("--user", help="Ask as this user.", metavar="NAME")]
CacertOption = Annotated[
    Path | None, typer.Option("--cacert", help="Certificates that have signed the worker's.", metavar="FILE")
]
CertOption = Annotated[Path | None, typer.Option("--cert", help="Show this certificate to the worker.", metavar="FILE")]
KeyOption = Annotated[
    Path | None, typer.Option("--key", help="The key of --cert, where that file does not hold it.", metavar="FILE")
]


def address(url: str | None, worker: Path | None) -> str:
    """Returns where the worker answers: `url`, else what the worker file says, else DEFAULT_URL if there is no file.

    Raises UsageError if the file does not say it, ConfigError for a faulty one.
    """
    if url is not None:
        return url
    is_there = worker is not None or BOOTSTRAP_VARIABLE in os.environ
    if not is_there and not any(path.is_file() for path in DEFAULT_WORKER_FILES):
        return DEFAULT_URL
    return _address_of(worker_of(worker))


def _address_of(worker: WorkerConfig) -> str:
    """Returns `rest.advertised.*`, else the first of `listeners`; one on all addresses is reached on the loopback."""
    from connectors.config.fields import Listener

    if not worker.listeners:
        raise UsageError("The worker file has no listeners: the worker is not asked over REST.", _GIVE_URL)
    first = worker.listeners[0]
    port = worker.rest_advertised_port or first.port
    if port == 0:
        raise UsageError(f"The worker file lets {first} take any port that is free.", _GIVE_URL)
    host = worker.rest_advertised_host_name or _LOOPBACKS.get(first.host, first.host)
    return str(Listener(worker.rest_advertised_listener or first.scheme, host, port))


@contextmanager
def _client(
    worker: WorkerOption = None,
    url: UrlOption = None,
    user: UserOption = None,
    cacert: CacertOption = None,
    cert: CertOption = None,
    key: KeyOption = None,
) -> Iterator[RestClient]:
    """Gives a client of the worker during the block; asks for the password of `user`. Raises UsageError."""
    from connectors.rest.client import RestClient, tls

    with RestClient(address(url, worker), _auth(user), tls(cacert, cert, key)) as client:
        yield client


Asked = Callable[[], AbstractContextManager["RestClient"]]
"""Gives a client of the worker that the options name, once the command has checked what it was given."""

_OPTIONS: Final = inspect.signature(_client, eval_str=True, globals=globals(), locals={"RestClient": object})


def asks_worker(command: Callable[..., None]) -> Callable[..., None]:
    """Makes a command of a function whose first parameter is `Asked`: adds the options of `_client` to its own."""

    @wraps(command)
    def asks(**given: Any) -> None:
        options = {name: given.pop(name) for name in _OPTIONS.parameters}
        command(partial(_client, **options), **given)

    own = list(inspect.signature(command, eval_str=True).parameters.values())[1:]
    parameters = [*own, *_OPTIONS.parameters.values()]
    asks.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # it is what Typer reads
    asks.__annotations__ = {each.name: each.annotation for each in parameters}
    return asks


def _auth(user: str | None) -> tuple[str, str] | None:
    if user is None:
        return None
    password = os.environ.get(PASSWORD_VARIABLE)
    return user, typer.prompt(f"Password of {user}", hide_input=True, err=True) if password is None else password
