"""The command `keyfold`: its subcommands, one file each, and how each ends.

What is slow to import (pyspark, confluent_kafka, duckdb) is imported in the command that needs it. The exit codes:

0 done or clean SIGTERM · 1 a connector FAILED, or a file is damaged · 2 usage · 3 configuration
4 broker or storage unreachable · 5 fenced by a newer owner · 6 an erasure waits for the end of tombstones
130 interrupted by Ctrl-C
"""

from __future__ import annotations

import os
import sys
import textwrap
import traceback
from collections.abc import Callable
from typing import Annotated, Any, Final

import structlog
import typer

from compactor.errors import KeyfoldError
from compactor.spark.errors import briefly
from connectors import logging_setup
from connectors.cli.commands.analyze import analyze
from connectors.cli.commands.bootstrap import bootstrap
from connectors.cli.commands.clean import clean
from connectors.cli.commands.connectors import app as connectors_app
from connectors.cli.commands.delete import delete
from connectors.cli.commands.demo import demo
from connectors.cli.commands.describe import describe
from connectors.cli.commands.dlq import app as dlq_app
from connectors.cli.commands.dump import dump
from connectors.cli.commands.erase import app as erase_app
from connectors.cli.commands.failpoints import failpoints
from connectors.cli.commands.get import get
from connectors.cli.commands.kafka import kafka
from connectors.cli.commands.package import package
from connectors.cli.commands.rebuild import rebuild
from connectors.cli.commands.release import release
from connectors.cli.commands.restart import restart
from connectors.cli.commands.restore import restore
from connectors.cli.commands.resync import resync
from connectors.cli.commands.run import run
from connectors.cli.commands.snapshot import app as snapshot_app
from connectors.cli.commands.tail import tail
from connectors.cli.commands.top import top
from connectors.cli.commands.validate import validate
from connectors.cli.commands.version import installed, version
from connectors.cli.docstrings import epilog_of, examples_in, examples_of, help_of
from connectors.cli.groups import Command, CommandGroup, TakingGroup
from connectors.cli.output import note, say
from connectors.config.secrets import logged_text
from connectors.errors import EXIT_INTERRUPTED, EXIT_OK, exit_code
from connectors.machine_errors import MEND, is_of_machine, lack_of

log = structlog.get_logger(__name__)


def exit_of(error: BaseException) -> typer.Exit:
    """Writes to stderr what happened and what to do; returns the exit that `error` ends a command with."""
    if isinstance(error, BrokenPipeError):
        return _leave_quietly()
    log.debug("command failed", traceback="".join(traceback.format_exception(error)))
    note(logged_text(message_of(error)))
    return typer.Exit(exit_code(error))


def interrupted() -> typer.Exit:
    """Returns the exit of a command that Ctrl-C ended."""
    note("interrupted")
    return typer.Exit(EXIT_INTERRUPTED)


def message_of(error: BaseException) -> str:
    """Returns `error: …` and, on a line of its own, `next: …`; no traceback."""
    if isinstance(error, KeyfoldError):
        parts = (("error", error.message), ("next", error.action))
        return "\n".join(_paragraph(name, text) for name, text in parts if text)
    if is_of_machine(error):
        return f"{_paragraph('error', f'The machine lacks something: {lack_of(error)}.')}\n{_paragraph('next', MEND)}"
    kind, said = type(error).__name__, briefly(error) if str(error).strip() else "no message"
    advice = (
        "Please report it: keyfold should have said what it means. KEYFOLD_LOG_LEVEL=debug shows where it came from."
    )
    return f"{_paragraph('error', f'{kind}: {said}')}\n{_paragraph('next', advice)}"


def _paragraph(name: str, text: str) -> str:
    """Returns `name: text`; further lines of `text` are indented below the first."""
    first, *rest = text.strip().splitlines()
    return "\n".join([f"{name}: {first}", *(textwrap.indent(line, "  ") for line in rest)])


def _leave_quietly() -> typer.Exit:
    """Returns the exit after the reader of stdout has gone (`keyfold dump … | head`), which is no error."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return typer.Exit(EXIT_OK)


class _Commands(CommandGroup):
    """Turns every error of a command into its message and its exit code."""

    def invoke(self, ctx: Any) -> Any:
        """Runs the command that `ctx` names."""
        try:
            return super().invoke(ctx)
        except Exception as error:
            if isinstance(error, _TYPERS_OWN):
                raise
            raise exit_of(error) from error
        except KeyboardInterrupt as error:
            raise interrupted() from error
        except SystemExit:
            raise
        except BaseException as error:  # a panic of a library in Rust: Python would print what it says as it is
            raise exit_of(error) from error


_TYPERS_OWN = (typer.Exit, typer.Abort, typer.TyperException)

app = typer.Typer(
    cls=_Commands,
    name="keyfold",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Folds Kafka topics by key: a compacted changelog topic and Parquet snapshots.",
    epilog="Exit codes: 0 done, 1 FAILED, 2 usage, 3 configuration, 4 unreachable, 5 fenced by a newer owner, "
    "6 an erasure waits for tombstones, 130 interrupted by Ctrl-C.",
)


def _print_version(wanted: bool) -> None:
    if wanted:
        say(f"keyfold {installed('keyfold')}")
        raise typer.Exit


VersionOption = Annotated[
    bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show keyfold's version and exit.")
]


@app.callback()
def prepare(version: VersionOption = False) -> None:  # its callback has answered it
    """Logs to stderr from the first moment on; a command that reads a worker file sets it up again."""
    logging_setup.configure("warning")


COMMANDS: Final[tuple[Callable[..., None], ...]] = (
    *(run, validate, describe, analyze, get, dump, clean, release, restart, resync, rebuild, restore, delete),
    *(top, tail, bootstrap, kafka, failpoints, package, demo, version),
)
"""The subcommands, in the order of `keyfold --help`."""

GROUPS: Final = {
    "Run": "run validate demo",
    "Look": "describe get dump tail bootstrap analyze version",
    "Ask a worker": "top connectors restart clean snapshot release erase dlq",
    "Start over": "resync rebuild restore delete",
    "For clusters and trials": "package kafka failpoints",
}
"""The headings of `keyfold --help`, with the commands below each."""
HEADINGS: Final = {name: heading for heading, names in GROUPS.items() for name in names.split()}


def _heading(name: str) -> str:
    return HEADINGS.get(name, "Look")


for heading in GROUPS:
    for command in COMMANDS:
        if _heading(command.__name__) == heading:
            app.command(
                cls=Command, help=help_of(command), epilog=epilog_of(examples_of(command)), rich_help_panel=heading
            )(command)


def _add_group(group: typer.Typer, kind: type[CommandGroup]) -> None:
    """Adds a group of commands; its examples are the first of each, and all of what it does itself."""
    examples: list[str] = []
    for registered in group.registered_commands:
        registered.cls = Command
        if registered.help is None and registered.callback is not None:
            registered.help = help_of(registered.callback)
            registered.epilog = epilog_of(examples_of(registered.callback))
        own = registered.callback is not None and registered.callback.__name__ == TakingGroup.default
        examples += examples_in(registered.epilog)[: None if own else 1]
    heading = _heading(group.info.name or "")
    app.add_typer(group, cls=kind, epilog=epilog_of(examples), rich_help_panel=heading)


for several, kind in (
    (connectors_app, CommandGroup),
    (dlq_app, CommandGroup),
    (snapshot_app, TakingGroup),
    (erase_app, TakingGroup),
):
    _add_group(several, kind)


def main() -> int:
    """Runs the command line of this process and returns its exit code."""
    try:
        app(prog_name="keyfold")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    return 0


if __name__ == "__main__":
    sys.exit(main())
