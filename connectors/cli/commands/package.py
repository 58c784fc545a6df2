"""`keyfold package`: what the executors of a Spark cluster need, as an archive."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from connectors.cli.options import JsonOption, UnusedWorkerOption
from connectors.cli.output import say, say_json
from connectors.errors import UsageError
from connectors.progress.terminal import table

_ENDINGS = (".tar.gz", ".tgz", ".tar")

FileArgument = Annotated[
    Path | None, typer.Argument(help="The archive; left out: in the user's cache.", metavar="[FILE.tar.gz]")
]


def package(file: FileArgument = None, as_json: JsonOption = False, worker: UnusedWorkerOption = None) -> None:
    """Writes an archive of keyfold and its packages for executors, and shows the Spark settings that use it.

    A worker on a cluster makes and sends it by itself, unless executors.package, spark.archives or an image say
    otherwise; this is for those who want to place it themselves.

    Examples:
        keyfold package keyfold.tar.gz
    """
    from connectors.spark import archive_cache
    from connectors.spark.executor_archive import ensure_archive, make_archive
    from connectors.spark.executor_settings import PYTHON, PYTHON_NAME, archive_settings

    if file is not None and not file.name.endswith(_ENDINGS):
        raise UsageError(
            f"{file} would not be unpacked: Spark goes by the name's end.", f"Name a file that ends with {_ENDINGS[0]}."
        )
    made = ensure_archive() if file is None else make_archive(file.absolute())
    if file is None:
        archive_cache.keep(made.file)  # its path may now stand in a worker file
    settings = {**archive_settings(made.file, {}), PYTHON: PYTHON_NAME}
    if as_json:
        say_json({"file": str(made.file), "bytes": made.size, "packages": made.contents, "settings": settings})
        return
    say(table(("PACKAGE", "VERSION"), made.contents.items()))
    say(f"{made.file}: {made.size / 1e6:,.0f} MB for executors with {PYTHON_NAME} on this kind of machine.")
    say("Settings for the worker file:")
    say("\n".join(f'  "{key}": "{value}"' for key, value in settings.items()))
    say("Once you have placed the archive elsewhere, that place stands before the # of spark.archives.")
