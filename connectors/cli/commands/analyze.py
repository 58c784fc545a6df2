"""`keyfold analyze`: what a full fold now would do, also under other settings; it changes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from connectors.cli.options import ConnectorArgument, JsonOption, WorkerOption, configs_of, parts_of
from connectors.cli.output import show
from connectors.errors import UsageError

WithOption = Annotated[
    list[str] | None,
    typer.Option("--with", help="Look at this setting of the connector too; may be repeated.", metavar="KEY=VALUE"),
]


def analyze(
    context: typer.Context,
    connector: ConnectorArgument,
    changes: WithOption = None,
    as_json: JsonOption = False,
    worker: WorkerOption = None,
) -> None:
    """Shows what a full fold now would remove and keep, per partition; --with: under other settings as well.

    Reads beside a live worker, or without one; writes nothing and takes nothing over.

    Examples:
        keyfold analyze customers.json
        keyfold analyze customers.json --with min.compaction.lag.ms=0
    """
    config, settings = configs_of(connector, worker)
    from connectors.cli.views.analyze import text
    from connectors.operations import analyze as operation

    report = operation.analyze(config, settings, parsed(changes or ()), connector, parts_of(context).clock)
    show(report, lambda: text(report), as_json=as_json)


def parsed(changes: Sequence[str]) -> dict[str, str]:
    """Parses `--with KEY=VALUE`, without blanks around them. Raises UsageError for what is none, or stands twice."""
    settings: dict[str, str] = {}
    for change in changes:
        key, equals, value = (part.strip() for part in change.partition("="))
        if not key or not equals:
            raise UsageError(f'--with "{change}" is not KEY=VALUE.', "For example --with min.compaction.lag.ms=0.")
        if key in settings:
            raise UsageError(f"--with {key} stands twice.", "Give each setting once; run the command again for others.")
        settings[key] = value
    return settings
