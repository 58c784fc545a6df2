"""Tells a person what the demo did, at its end. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from shlex import quote
from typing import Final

from connectors.dev.demo import load, named_table, steps
from connectors.dev.demo.folder import DemoFolder, shown
from connectors.dev.demo.steps import DemoRun
from connectors.progress.terminal import table

_TITLE: Final = "Flights out of New York in 2013, folded by aircraft"


def report(outcome: DemoRun, folder: DemoFolder, commands: Path) -> str:
    """Says what went in and came out, how long it took, what is in the snapshot, and how to go on.

    `commands` is the folder of keyfold's command, and so of its Python's pip.
    """
    parts = (
        _what(outcome),
        _times(outcome),
        _next(outcome, folder, commands),
        _snapshot(outcome),
        _query(outcome, folder, commands),
    )
    return "\n\n".join([_TITLE, *("\n".join(part) for part in parts)])


def _what(outcome: DemoRun) -> Iterator[str]:
    output, letters = outcome.output, outcome.dead_letters
    rows = [
        ("in", "flights read", f"topic {load.TOPIC}", outcome.loaded),
        ("out", "aircraft, each with its last flight", "snapshot", outcome.snapshot.records),
        ("out", "aircraft on the compacted topic", f"topic {steps.OUTPUT}", output.keys),
        ("out", "records on it", f"topic {steps.OUTPUT}", output.records),
        ("out", "of these, tombstones", f"topic {steps.OUTPUT}", output.tombstones),
        ("out", "flights without a tail number", f"topic {steps.DEAD_LETTERS}", letters.records),
    ]
    yield table(("", "WHAT", "WHERE", "COUNT"), rows)


def _times(outcome: DemoRun) -> Iterator[str]:
    rows = [(name, round(seconds, 2)) for name, seconds in outcome.seconds.items()]
    yield table(("STEP", "SECONDS"), [*rows, ("together", round(sum(outcome.seconds.values()), 2))])


def _snapshot(outcome: DemoRun) -> Iterator[str]:
    yield f"Snapshot: {shown(outcome.snapshot.path)}"


def _query(outcome: DemoRun, folder: DemoFolder, commands: Path) -> Iterator[str]:
    yield "DuckDB has it by its name, with a column for each field:"
    yield f"  {_typed(commands, 'pip')} install duckdb-cli"
    yield f'  {_typed(commands, "duckdb")} {quote(shown(folder.database))} "{named_table.COUNT}"'
    yield ""
    yield "Asked of it:"
    yield from (f"  {line}" for line in named_table.CARRIERS.splitlines())
    yield ""
    yield table([name.upper() for name in outcome.answer.columns], outcome.answer.rows)


def _next(outcome: DemoRun, folder: DemoFolder, commands: Path) -> Iterator[str]:
    keyfold = _typed(commands, "keyfold")
    port = outcome.bootstrap.rpartition(":")[2]
    yield "Start that broker again, and in another terminal read the compacted topic:"
    yield f"  {keyfold} kafka --port {port} --data-dir {quote(shown(folder.kafka))}"
    yield f"  {keyfold} tail {steps.OUTPUT} --worker {quote(shown(folder.worker_file))} --from-beginning --max 5"


def _typed(commands: Path, name: str) -> str:
    """Returns the command of that name in a folder, as a person types it in a shell."""
    return quote(str(commands / name))
