"""`keyfold resync`: reads a connector's source again, and makes the output equal to it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from connectors.cli.options import (
    ConnectorArgument,
    JsonOption,
    LossOption,
    SomePartitionOption,
    SomeTopicOption,
    TimeoutOption,
    WorkerOption,
    check_has_topic,
    configs_of,
    request_timeout,
)
from connectors.cli.output import show
from connectors.clock import SYSTEM_CLOCK
from connectors.errors import UsageError
from connectors.operations.request_timeout import TIMEOUT_S
from connectors.progress.terminal import table

if TYPE_CHECKING:
    from connectors.operations.offsets import Since
    from connectors.runtime.offset_change import ChangedLog

SinceOption = Annotated[
    str | None,
    typer.Option(
        "--since",
        help="Not from the start: from this time on (2026-11-26T10:00:00Z), or this offset of --partition.",
        metavar="TIME|OFFSET",
    ),
]


def resync(
    connector: ConnectorArgument,
    topic: SomeTopicOption = None,
    partition: SomePartitionOption = None,
    since: SinceOption = None,
    accept_loss: LossOption = False,
    as_json: JsonOption = False,
    timeout: TimeoutOption = TIMEOUT_S,
    worker: WorkerOption = None,
) -> None:
    """Reads the source anew from its start, as a new generation, and then makes the output equal to it.

    For an output or a source that was recreated, and for files that are lost while the source still has the records.
    A key that does not come again gets a tombstone. The output stays as it is until all is read. Refused if records
    are gone that the connector has read, or has not read yet, unless --accept-loss is given.

    With --since the source is read from there on, and a key that has no record since gets a tombstone: after a source
    has sent all its rows again, that sweeps the rows that were deleted unseen.

    Examples:
        keyfold resync customers.json
        keyfold resync customers.json --since 2026-11-26T10:00:00Z
    """
    check_has_topic(topic, partition)
    begin = since_of(since, partition, SYSTEM_CLOCK.now_ms())
    config, settings = configs_of(connector, worker)
    from connectors.operations import offsets

    def tell(changed: Sequence[ChangedLog]) -> None:
        show(changed, lambda: _text(settings.name, changed), as_json=as_json)

    wait = request_timeout(timeout)
    tell(offsets.resync(config, settings, topic, partition, wait, accepts_loss=accept_loss, since=begin, report=tell))


def since_of(text: str | None, partition: int | None, now_ms: int) -> Since:
    """Reads the value of --since. Raises UsageError if it is neither a time with its zone nor an offset, or is late."""
    from connectors.operations.offsets import FROM_START, Since

    if text is None:
        return FROM_START
    if text.isascii() and text.isdigit() and len(text) <= _OFFSET_DIGITS:
        if partition is None:
            raise UsageError(
                f"--since {text} is an offset, and each partition has its own.",
                "Name one by --topic and --partition; or give a time, which holds for all.",
            )
        return Since(offset=int(text))
    try:
        time = None if text.isdigit() else datetime.fromisoformat(text)
    except ValueError:
        time = None
    if time is None or time.tzinfo is None:
        what = "has no time zone" if time else "is neither a time nor an offset"
        raise UsageError(f"--since {text} {what}.", "Write it as 2026-11-26T10:00:00Z, or with +02:00 for Z.")
    time_ms = round(time.timestamp() * 1000)
    if time_ms > now_ms:
        raise UsageError(f"--since {text} has not come yet: no record has that time.", "Look at its zone.")
    return Since(time_ms=max(0, time_ms))


# An offset has 64 bits.
_OFFSET_DIGITS = 18
_HEADERS = ("TOPIC", "PARTITION", "GENERATION", "FROM OFFSET", "KEYS IN THE OUTPUT", "LOST")


def _text(name: str, changed: Sequence[ChangedLog]) -> str:
    if not changed:
        return "Nothing was changed: the connector has no partitions yet."
    rows = [
        (log.topic, log.partition, log.generation, log.offset, log.tombstones, log.skipped)
        for log in sorted(changed, key=lambda log: (log.topic, log.partition))
    ]
    return (
        f"{table(_HEADERS, rows)}\n\nThe output stays as it is until connector {name} has read up to where the source "
        "ends now, in its worker or by the next `keyfold run`; `keyfold describe` shows how far it is."
    )
