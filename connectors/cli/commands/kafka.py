"""`keyfold kafka`: a real broker in the foreground, for trying things out."""

from __future__ import annotations

import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

from connectors.cli.options import UnusedWorkerOption
from connectors.cli.output import say
from connectors.errors import EXIT_OK

_POLL_S = 0.2


def kafka(
    port: Annotated[
        int | None, typer.Option("--port", min=1, max=65535, help="Port of 127.0.0.1; a free one when left out.")
    ] = None,
    data_dir: Annotated[
        Path | None, typer.Option("--data-dir", help="Kept and used again; a temporary one when left out.")
    ] = None,
    worker: UnusedWorkerOption = None,
) -> None:
    """Runs Apache Kafka on 127.0.0.1 until SIGINT or SIGTERM; prints `listening on 127.0.0.1:PORT` when ready.

    A port that is in use, or a broker that ends by itself, is an error with exit code 4; a folder in which another
    broker runs one with exit code 3.

    Examples:
        keyfold kafka --port 9092 --data-dir kafka-data
    """
    from connectors.dev.embedded_kafka import EmbeddedKafka

    _handle_signals(_exit)
    with _directory(data_dir) as directory, EmbeddedKafka(directory, port) as broker:
        say(f"listening on {broker.bootstrap}")
        ended: list[int] = []
        # Noted only: an exception would leave subprocess' lock held if it interrupts a look at the broker's process.
        _handle_signals(lambda number, _: ended.append(number))
        while not ended:
            broker.require_running()
            time.sleep(_POLL_S)
        _handle_signals(signal.SIG_IGN)


@contextmanager
def _directory(given: Path | None) -> Iterator[Path]:
    if given is not None:
        yield given
        return
    with tempfile.TemporaryDirectory(prefix="keyfold-kafka-") as temporary:
        yield Path(temporary)


def _handle_signals(handler: Callable[[int, FrameType | None], object] | signal.Handlers) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, handler)


def _exit(_number: int, _frame: FrameType | None) -> None:
    """Unwinds to the broker's stop(); a second signal does not interrupt that."""
    _handle_signals(signal.SIG_IGN)
    raise SystemExit(EXIT_OK)
