"""`keyfold get`: the latest record that is kept of each of some keys, one JSON object a line."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated, Final

import typer

from compactor.arrow_start import begin_without_pandas
from connectors.cli.commands.dump import TextOption, shows_text
from connectors.cli.options import ConnectorArgument, SomePartitionOption, SomeTopicOption, WorkerOption, configs_of
from connectors.cli.output import JsonLines, note
from connectors.errors import EXIT_FAILED, UsageError

HOW_KEPT: Final = (
    "Keys are compared by their bytes, with the schema and the spaces that they have. keyfold dump CONNECTOR.json "
    "--partition P --max 1 --text shows how one is kept."
)
"""What to do about a key of which nothing is kept: a key of a converter is often given as its value alone."""

KeysArgument = Annotated[list[str], typer.Argument(help="The keys, as text.", metavar="KEY")]
HexOption = Annotated[bool, typer.Option("--hex", help="The keys are bytes in hexadecimal digits.")]
JsonKeyOption = Annotated[
    bool, typer.Option("--json", help="The keys are JSON, and kept as keyfold.Json writes it: without spaces.")
]


def get(
    connector: ConnectorArgument,
    keys: KeysArgument,
    as_hex: HexOption = False,
    as_json: JsonKeyOption = False,
    topic: SomeTopicOption = None,
    partition: SomePartitionOption = None,
    text: TextOption = None,
    worker: WorkerOption = None,
) -> None:
    """Prints the latest record that keyfold keeps of each key, with a live worker or without one.

    Every partition is asked, or the one that is named. Of a key that a converter writes its value is enough, such as
    {"id": 7}. With state.index=always it takes a few reads; otherwise all keys are read. If nothing is kept of a key,
    stderr names it, and the exit code is 1.

    Examples:
        keyfold get customers.json ann --text
    """
    wanted = parsed(keys, as_hex=as_hex, as_json=as_json)
    begin_without_pandas()
    config, settings = configs_of(connector, worker)
    from connectors.operations.typed_keys import look_up

    answer = look_up(config, settings, wanted, topic, partition, typed=not as_hex)
    out = JsonLines()
    is_text = shows_text(text)
    out.write(record.shown(text=is_text) for record in answer.records)
    out.flush()
    for key in answer.absent:
        note(f"Nothing is kept of {_printable(key)}.")
    if answer.absent:
        note(f"next: {HOW_KEPT}")
        raise typer.Exit(EXIT_FAILED)


def parsed(keys: Sequence[str], *, as_hex: bool, as_json: bool) -> list[bytes]:
    """Returns the bytes of `keys`, each once. Raises UsageError for one that is not of the form that was said."""
    if as_hex and as_json:
        raise UsageError("--hex and --json stand together.", "Give one of them: they say what the keys are.")
    form = _of_hex if as_hex else _of_json if as_json else str.encode
    return list(dict.fromkeys(map(form, keys)))


def _of_hex(key: str) -> bytes:
    try:
        return bytes.fromhex(key)
    except ValueError:
        raise UsageError(
            f'The key "{key}" is not in hexadecimal digits.', "For example --hex 00ff, two each."
        ) from None


def _of_json(key: str) -> bytes:
    try:
        return json.dumps(json.loads(key), separators=(",", ":"), ensure_ascii=False).encode()
    except ValueError as error:
        raise UsageError(f'The key "{key}" is no JSON: {error}.', "For example '{\"id\":7}'.") from None


def _printable(key: bytes) -> str:
    """Returns a key as a message shows it: at most 100 characters, in quotes, nothing that a terminal obeys."""
    return json.dumps(key.decode(errors="backslashreplace")[:100], ensure_ascii=False)
