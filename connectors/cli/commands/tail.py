"""`keyfold tail`: the records of a topic as they come, one JSON object a line."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Annotated, Any

import typer
from msgspec import Struct

from connectors.cli.options import KeyOption, MaxOption, SomePartitionOption, WorkerOption, worker_of
from connectors.cli.output import JsonLines, note
from connectors.clock import SYSTEM_CLOCK
from connectors.signals import interrupt
from connectors.terminal_text import Readable, readable

if TYPE_CHECKING:
    from confluent_kafka import Message

TopicArgument = Annotated[str, typer.Argument(help="The topic.", metavar="TOPIC")]
AsTextOption = Annotated[
    bool, typer.Option("--text/--base64", help="Bytes that are UTF-8 as text, the default; or all as base64.")
]
BeginningOption = Annotated[bool, typer.Option("--from-beginning", help="From the first record there is.")]


class TopicRecord(Struct, frozen=True):
    """A record of a topic; bytes appear as `readable` gives them, or as base64; times in ms."""

    partition: int
    offset: int
    timestamp: int
    timestamp_type: str
    key: bytes | Readable
    value: bytes | Readable
    headers: tuple[tuple[str, bytes | Readable], ...]


def tail(
    topic: TopicArgument,
    from_beginning: BeginningOption = False,
    partition: SomePartitionOption = None,
    key: KeyOption = None,
    limit: MaxOption = None,
    text: AsTextOption = True,
    worker: WorkerOption = None,
) -> None:
    """Prints the committed records of TOPIC as they come, until Ctrl-C or --max; joins no consumer group.

    Examples:
        keyfold tail customers
        keyfold tail customers --from-beginning --max 3
    """
    config = worker_of(worker)
    signal.signal(signal.SIGTERM, interrupt)
    with suppress(KeyboardInterrupt):  # Ctrl-C is the way to end it
        from connectors.operations import tail as operation

        def begun(offsets: int | None) -> None:
            note(beginning(topic if partition is None else f"{topic}-{partition}", offsets, is_whole=from_beginning))

        def silent() -> None:
            if from_beginning:
                note(f"No record has come for a second; waiting for more of {topic}. Ctrl-C ends it.")

        clock = SYSTEM_CLOCK
        polls = operation.tail(
            config, topic, clock, begun, silent, partition, key, limit, from_beginning=from_beginning
        )
        with closing(polls):
            write(polls, text=text)


def write(polls: Iterable[Sequence[Message]], *, text: bool = True) -> None:
    """Writes the records of `polls` to stdout, each poll at once; ends once stdout has no reader."""
    out = JsonLines()
    for messages in polls:
        out.write([line(message, text=text) for message in messages])
        out.flush()
        if not out.read_on:
            return


def beginning(source: str, offsets: int | None, *, is_whole: bool) -> str:
    """Returns the sentence that says at which record of a topic or partition `tail` begins, and how it does elsewhere.

    `offsets` are those that are there; None if brokers do not say how many.
    """
    if offsets == 0:
        return f"{source} is empty; waiting for its first record. Ctrl-C ends it."
    there = "" if offsets is None else f" ({offsets:,} offset{'s' * (offsets > 1)})"
    if is_whole:
        return f"From the beginning of {source}{there}, then what comes; without --from-beginning only what comes."
    return f"From the end of {source}: what comes now. --from-beginning prints what is there{there}. Ctrl-C ends it."


def line(message: Message, *, text: bool = True) -> TopicRecord:
    """Returns `message` as it is shown, as `text` or in base64; header names that are not UTF-8 as one that says so."""
    from compactor.model.record import TIMESTAMP_TYPES
    from connectors.kafka.consumers import headers_of

    form: Callable[[bytes | None], bytes | Readable] = readable if text else lambda data: data
    kind, timestamp = message.timestamp()
    headers, odd = headers_of(message)
    named: Any = headers if odd is None else [(f"({odd})", None)]
    return TopicRecord(
        partition=_known(message.partition()),
        offset=_known(message.offset()),
        timestamp=timestamp,
        timestamp_type=TIMESTAMP_TYPES[kind - 1],
        key=form(message.key()),
        value=form(message.value()),
        headers=tuple((name, form(value)) for name, value in named),
    )


def _known(number: int | None) -> int:
    assert number is not None, "a consumed record has a partition and an offset"
    return number
