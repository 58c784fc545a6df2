"""Says which worker the commands of `keyfold connectors` ask, and as whom: options that they all take.

Those of certificates have curl's names. On its own so that the file of the commands holds what they do.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

if TYPE_CHECKING:
    from connectors.rest.client import RestClient

DEFAULT_URL: Final = "http://127.0.0.1:8083"
URL_VARIABLE: Final = "KEYFOLD_REST_URL"
PASSWORD_VARIABLE: Final = "KEYFOLD_REST_PASSWORD"  # noqa: S105  # its name

UrlOption = Annotated[
    str, typer.Option("--url", help="The worker's address.", metavar="URL", envvar=URL_VARIABLE, show_envvar=False)
]
UserOption = Annotated[str | None, typer.Option("--user", help="Ask as this user.", metavar="NAME")]
CacertOption = Annotated[
    Path | None, typer.Option("--cacert", help="Certificates that have signed the worker's.", metavar="FILE")
]
CertOption = Annotated[Path | None, typer.Option("--cert", help="Show this certificate to the worker.", metavar="FILE")]
KeyOption = Annotated[
    Path | None, typer.Option("--key", help="The key of --cert, where that file does not hold it.", metavar="FILE")
]


@contextmanager
def asking(
    url: str, user: str | None, cacert: Path | None, cert: Path | None, key: Path | None
) -> Iterator[RestClient]:
    """Gives a client of the worker during the block; asks for the password of `user`. Raises UsageError."""
    from connectors.rest.client import RestClient, tls

    with RestClient(url, _auth(user), tls(cacert, cert, key)) as client:
        yield client


def _auth(user: str | None) -> tuple[str, str] | None:
    if user is None:
        return None
    password = os.environ.get(PASSWORD_VARIABLE)
    return user, typer.prompt(f"Password of {user}", hide_input=True, err=True) if password is None else password
