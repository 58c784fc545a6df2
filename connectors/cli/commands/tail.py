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

        def silent(records: int | None) -> None:
            note(waiting(topic, records, from_beginning=from_beginning))

        clock = SYSTEM_CLOCK
        polls = operation.tail(config, topic, clock, silent, partition, key, limit, from_beginning=from_beginning)
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


def waiting(topic: str, records: int | None, *, from_beginning: bool) -> str:
    """Returns the sentence that says what `tail` waits for, and how what is there is seen. `records`: offsets there."""
    if from_beginning:
        return f"No record has come for a second; waiting for more of {topic}. Ctrl-C ends it."
    if records == 0:
        return f"{topic} is empty; waiting for its first record. Ctrl-C ends it."
    there = "What is there already" if records is None else f"What is there already ({records:,} offsets)"
    return f"Waiting for new records of {topic}. {there} is printed with --from-beginning. Ctrl-C ends it."


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
