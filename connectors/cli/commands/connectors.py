"""`keyfold connectors`: what a worker runs, asked and changed over REST.

The options of certificates have curl's names.
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

from compactor.digits import whole
from connectors.cli.docstrings import epilog_of
from connectors.cli.options import JsonOption, LossOption, WorkerOption, has_worker, worker_of
from connectors.cli.output import say, say_json
from connectors.errors import UsageError
from connectors.progress.terminal import table

if TYPE_CHECKING:
    from connectors.config.worker import WorkerConfig
    from connectors.rest.client import RestClient, ShownConnector

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
    """Returns the address of the worker: `url`, else what the worker file says, else DEFAULT_URL if there is no file.

    Raises UsageError if the file does not say it, ConfigError for a faulty one.
    """
    if url is not None:
        return url
    return _address_of(worker_of(worker)) if has_worker(worker) else DEFAULT_URL


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
    """Makes a command of a function that has `Asked` first: adds the options of `_client` to its own."""

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
    if ":" in user:
        raise UsageError(
            "--user has a colon, as if a password stood behind it.",
            f"Give the user's name alone; the password is asked for, or is in {PASSWORD_VARIABLE}.",
        )
    password = os.environ.get(PASSWORD_VARIABLE)
    return user, typer.prompt(f"Password of {user}", hide_input=True, err=True) if password is None else password


_START: Final = "start"

NameArgument = Annotated[str, typer.Argument(help="The connector's name.", metavar="NAME")]
FileArgument = Annotated[Path, typer.Argument(help="The connector file.", metavar="CONNECTOR.json")]

app = typer.Typer(name="connectors", no_args_is_help=True, help="Asks a worker over REST: see, make, pause, restart.")


@app.command("list")
@asks_worker
def list_all(asked: Asked, as_json: JsonOption = False) -> None:
    """Lists the worker's connectors with their states.

    Examples:
        keyfold connectors list
    """
    from connectors.rest.client import ShownConnector

    path = "/connectors?expand=status&expand=info"
    with asked() as client:
        answer = client.get(path)
        if as_json:
            say_json(answer)
            return
        known = client.converted(answer, path, dict[str, ShownConnector])
    rows = [_row(name, each) for name, each in sorted(known.items())]
    say(table(("CONNECTOR", "STATE", "TASKS", "TOPICS", "WORKER"), rows))


def _row(name: str, known: ShownConnector) -> tuple[object, ...]:
    status, config = known.status, known.info.config
    topics = config.get("topics") or config.get("topics.regex")
    return name, status.connector.state, len(status.tasks), topics, status.connector.worker_id


@app.command("show")
@asks_worker
def show(asked: Asked, name: NameArgument, as_json: JsonOption = False) -> None:
    """Shows a connector's state, why it is FAILED, and its config; secrets are hidden.

    Examples:
        keyfold connectors show orders
    """
    from connectors.rest.client import ShownStatus, path_of

    paths = path_of(name, "status"), path_of(name, "config")
    with asked() as client:
        answers = [client.get(path) for path in paths]
        if as_json:
            say_json({"status": answers[0], "config": answers[1]})
            return
        status = client.converted(answers[0], paths[0], ShownStatus)
        config = client.converted(answers[1], paths[1], dict[str, str])
    count = len(status.tasks)
    say(f"Connector {name}: {status.connector.state}, {count} {'task' if count == 1 else 'tasks'}")
    if status.connector.trace:
        say(status.connector.trace)
    say()
    say(table(("KEY", "VALUE"), sorted(config.items())))


@app.command("create")
@asks_worker
def create(asked: Asked, file: FileArgument) -> None:
    """Makes the connector of a file on the worker, which keeps it; the file is not needed any more then.

    Examples:
        keyfold connectors create orders.json
    """
    config = _config(file)
    with asked() as client:
        client.send("POST", "/connectors", {"name": config["name"], "config": config})
    say(f"Connector {config['name']} was made.")


@app.command("update")
@asks_worker
def update(asked: Asked, file: FileArgument) -> None:
    """Changes the connector to what a file says, or makes it.

    Examples:
        keyfold connectors update orders.json
    """
    from connectors.rest.client import path_of

    config = _config(file)
    with asked() as client:
        client.send("PUT", path_of(config["name"], "config"), config)
    say(f"Connector {config['name']} has the config of {file}.")


def _config(file: Path) -> dict[str, str]:
    """Reads the settings of a connector file, relative paths made absolute, placeholders as they are."""
    from connectors.config.files import load_connector

    return load_connector(file).config.given


def _asks(word: str, method: str, then: str, help_text: str) -> None:
    """Adds the command `word`, which sends a request without a body; `then` is said of the connector."""

    @asks_worker
    def command(asked: Asked, name: NameArgument) -> None:
        from connectors.rest.client import path_of

        with asked() as client:
            client.send(method, path_of(name) if word == "delete" else path_of(name, word))
        say(f"Connector {name} {then}")

    app.command(word, help=help_text, epilog=epilog_of([f"keyfold connectors {word} orders"]))(command)


for _command in (
    (
        *("pause", "PUT", "is being paused."),
        "Has a connector take nothing in and publish nothing; what it has open stays open.",
    ),
    ("resume", "PUT", "is being resumed.", "Lets a paused or stopped connector run again."),
    (
        *("stop", "PUT", "is being stopped."),
        "Stops a connector and lets go of all that it holds, until it is resumed.",
    ),
    ("restart", "POST", "is being restarted.", "Restarts a connector."),
    (
        *("delete", "DELETE", "is deleted on the worker; what it keeps and has published stays."),
        "Ends a connector and forgets its config; what it keeps and has published stays (keyfold delete).",
    ),
):
    _asks(*_command)


SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", help="Go on there; the connector must be stopped.", metavar="TOPIC:PARTITION=OFFSET|start"),
]
ResetOption = Annotated[
    bool, typer.Option("--reset", help="Go on at the start of each partition; the connector must be stopped.")
]


@app.command("offsets")
@asks_worker
def offsets(
    asked: Asked,
    name: NameArgument,
    to: SetOption = None,
    reset: ResetOption = False,
    accept_loss: LossOption = False,
    as_json: JsonOption = False,
) -> None:
    """Shows up to where a connector has published each partition: the next source offset. Or changes that.

    Forward leaves a gap. Back has the partition read anew from there; once it is where the source ends now, the output
    is made equal to it.

    Examples:
        keyfold connectors offsets orders
        keyfold connectors offsets orders --set orders:0=0
    """
    import msgspec

    from connectors.rest.client import ShownPositions, path_of

    if to and reset:
        raise UsageError("--set and --reset exclude each other.", "Give one of them.")
    changes = [_offset(text) for text in to or ()]
    query = "?acceptLoss=true" if accept_loss else ""
    with asked() as client:
        if changes:
            client.send("PATCH", path_of(name, "offsets") + query, {"offsets": changes})
        elif reset:
            client.send("DELETE", path_of(name, "offsets") + query)
        published = client.read(path_of(name, "offsets"), ShownPositions).offsets
    if as_json:
        say_json({"offsets": msgspec.to_builtins(published)})
        return
    rows = [
        (each.partition.kafka_topic, each.partition.kafka_partition, each.offset.kafka_offset) for each in published
    ]
    say(table(("TOPIC", "PARTITION", "OFFSET"), rows) if rows else f"Connector {name} has published nothing yet.")


def _offset(text: str) -> dict[str, Any]:
    """Returns what `--set TOPIC:PARTITION=OFFSET` asks for, in the form of a request."""
    place, _, offset = text.partition("=")
    topic, _, partition = place.rpartition(":")
    if not topic or whole(partition) is None or (offset != _START and whole(offset) is None):
        raise UsageError(f"--set {text!r} is not understood.", "Write TOPIC:PARTITION=OFFSET, or =start.")
    return {
        "partition": {"kafka_topic": topic, "kafka_partition": whole(partition)},
        "offset": None if offset == _START else {"kafka_offset": whole(offset)},
    }
