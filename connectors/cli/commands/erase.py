"""`keyfold erase`: removes all that is kept of some keys, and writes a signed receipt of it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from connectors.cli.commands.get import HOW_KEPT, HexOption, parsed
from connectors.cli.options import (
    ConnectorArgument,
    JsonOption,
    SomeTopicOption,
    TimeoutOption,
    WorkerOption,
    configs_of,
    request_timeout,
    worker_of,
)
from connectors.cli.output import note, show
from connectors.errors import EXIT_FAILED, EXIT_PENDING, UsageError
from connectors.operations.request_timeout import TIMEOUT_S

KeysOption = Annotated[list[str] | None, typer.Option("--key", help="A key, as text; may be repeated.", metavar="K")]
FileOption = Annotated[
    Path | None, typer.Option("--keys-from", help="A file with a key a line, which may end in CR LF.", metavar="FILE")
]
JsonKeysOption = Annotated[bool, typer.Option("--json-keys", help="The keys are JSON, as of keyfold get --json.")]
PinnedOption = Annotated[bool, typer.Option("--pinned", help="Also unpin and remove pinned snapshots.")]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")]
ReceiptOption = Annotated[Path | None, typer.Option("--receipt", help="A further copy of the receipt.", metavar="FILE")]
ReceiptArgument = Annotated[
    str, typer.Argument(help="The receipt's file, or its URL in an object store.", metavar="RECEIPT")
]
PublicKeyOption = Annotated[
    Path | None,
    typer.Option("--public-key", help="The key that signed it; left out: this account's own.", metavar="FILE"),
]
MOST_KEYS: Final = 100_000
"""Keys of one erasure: a receipt has a hash and a tombstone of each, and is read back whole. So many take 0.5 GB."""
_MOST_BYTES: Final = 64 << 20

app: Final = typer.Typer(
    name="erase",
    no_args_is_help=True,
    help="Erases keys from all that is kept, with a signed receipt; with verify, looks again later.",
)


@app.command()
def take(
    connector: ConnectorArgument,
    keys: KeysOption = None,
    keys_from: FileOption = None,
    as_hex: HexOption = False,
    json_keys: JsonKeysOption = False,
    topic: SomeTopicOption = None,
    pinned: PinnedOption = False,
    dry_run: DryRunOption = False,
    receipt: ReceiptOption = None,
    as_json: JsonOption = False,
    timeout: TimeoutOption = TIMEOUT_S,
    worker: WorkerOption = None,
) -> None:
    """Sends tombstones of keys to the source, then removes what runs, snapshots and tables have of them.

    A live worker is asked; otherwise this process runs the connector once. A run that was cut off is gone on with by
    the same command. Exit code 0 also if only tombstones wait: `erase verify` says when they are gone. Exit code 1:
    something else is left, and the receipt says what.

    Examples:
        keyfold erase customers.json --key ann --dry-run
        keyfold erase customers.json --key ann --receipt receipt.json
    """
    wanted = _wanted(keys, keys_from, as_hex=as_hex, as_json=json_keys)
    config, settings = configs_of(connector, worker)
    from connectors.cli.views import erasure as view
    from connectors.operations.erase import receipt as receipts
    from connectors.operations.erase.run import EraseOptions, Eraser

    options = EraseOptions(topic=topic, pinned=pinned)
    eraser = Eraser(config, settings, wanted, options, request_timeout(timeout))
    if dry_run:
        plan = eraser.plan()
        show(plan, lambda: view.plan_text(plan), as_json=as_json)
        if plan.absent:
            note(f"next: {HOW_KEPT}")
        return
    done = eraser.run()
    if receipt is not None:
        _copy(receipt, receipts.encoded(done.signed))
    show(done, lambda: view.erased_text(done), as_json=as_json)
    step = view.next_step(done)
    if step is not None:
        note(f"next: {step}")
    if done.signed.receipt.state == receipts.INCOMPLETE:
        raise typer.Exit(EXIT_FAILED)


@app.command()
def verify(
    receipt: ReceiptArgument,
    keys: KeysOption = None,
    keys_from: FileOption = None,
    as_hex: HexOption = False,
    json_keys: JsonKeysOption = False,
    public_key: PublicKeyOption = None,
    as_json: JsonOption = False,
    worker: WorkerOption = None,
) -> None:
    """Checks the signature of a receipt and searches again: exit code 0 if nothing is left, 6 if only tombstones are.

    Exit code 1: the signature does not count, or something else is left. With the keys, every file is searched for
    their bytes; without, columns of keys are compared by the receipt's hashes.

    Examples:
        keyfold erase verify receipt.json
    """
    given = _wanted(keys, keys_from, as_hex=as_hex, as_json=json_keys) if keys or keys_from else None
    config = worker_of(worker)
    from connectors.cli.views import erasure as view
    from connectors.operations.erase import receipt as receipts
    from connectors.operations.erase.verify import verify as operation

    verified = operation(config, receipt, given, public_key)
    show(verified, lambda: view.verified_text(verified), as_json=as_json)
    if not verified.is_sound:
        note("next: Run keyfold erase with the keys again; of a wrong signature ask who has had the file.")
        raise typer.Exit(EXIT_FAILED)
    if verified.state == receipts.PENDING:
        raise typer.Exit(EXIT_PENDING)


def _wanted(keys: list[str] | None, file: Path | None, *, as_hex: bool, as_json: bool) -> list[bytes]:
    """Returns the keys that are named, each once. Raises UsageError if there are none, or too many."""
    lines = [] if file is None else _lines(file)
    wanted = parsed([*(keys or ()), *lines], as_hex=as_hex, as_json=as_json)
    if not wanted:
        raise UsageError("No key is named.", "Give --key K, or --keys-from FILE with a key a line.")
    if len(wanted) > MOST_KEYS:
        raise UsageError(f"{len(wanted):,} keys are more than {MOST_KEYS:,}.", "Erase them in several runs.")
    return wanted


def _copy(file: Path, data: bytes) -> None:
    """Writes a copy of the receipt; what was erased stands, if there is no room for it or no right to write."""
    try:
        file.write_bytes(data)
    except OSError as error:
        note(f"The copy of the receipt cannot be written to {file}: {error.strerror}.")


def _lines(file: Path) -> list[str]:
    try:
        with file.open("rb") as stream:
            data = stream.read(_MOST_BYTES + 1)
        text = data.decode("utf-8-sig")  # an editor may have put a mark before the first key
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"The keys of {file} cannot be read: {error}.", "A key a line; --hex for bytes.") from error
    if len(data) > _MOST_BYTES:
        raise UsageError(f"{file} has more than {_MOST_BYTES:,} bytes.", "Erase the keys in several runs.")
    lines = (line.removesuffix("\r") for line in text.split("\n"))
    return [line for line in lines if line]
