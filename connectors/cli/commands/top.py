"""`keyfold top`: what a worker's connectors do now, asked over REST again and again."""

from __future__ import annotations

import os
import select
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Annotated, Final

import typer

from compactor.errors import KeyfoldError
from connectors.cli.commands.connectors import Asked, asks_worker
from connectors.cli.options import JsonOption
from connectors.cli.output import say, say_json
from connectors.cli.views.top import KEYS, NAMES, ORDERS, TopRow, TopSample, TopState, rows, text, values_of
from connectors.cli.views.top_screen import TopSeen, after, fitting_rows, keys_in, moved, notice, screen
from connectors.clock import SYSTEM_CLOCK, Durations
from connectors.errors import UsageError
from connectors.progress.terminal import is_terminal

if TYPE_CHECKING:
    from connectors.rest.client import RestClient

_PATH: Final = "/connectors?expand=status"
_KEY_BYTES: Final = 64
"""Bytes of keys that are read at once: a held key sends some ten in the time of a look."""


def _orders(incomplete: str) -> list[str]:
    """Lists what a shell offers after --sort."""
    return [name for name in ORDERS if name.startswith(incomplete)]


SortOption = Annotated[
    str,
    typer.Option("--sort", help=f"By what: {', '.join(ORDERS)}.", metavar="ORDER", autocompletion=_orders),
]
OnceOption = Annotated[bool, typer.Option("--once", help="Print one table and end, as into a pipe.")]
IntervalOption = Annotated[
    float, typer.Option("--interval", help="How often the worker is asked.", metavar="SECONDS", min=0.1)
]


@asks_worker
def top(
    asked: Asked,
    sort: SortOption = "state",
    once: OnceOption = False,
    interval: IntervalOption = 2.0,
    as_json: JsonOption = False,
) -> None:
    """Shows a worker's connectors again and again: state, lag, freshness, rates, folds, dead letters, errors.

    On a terminal a letter changes the order, arrows and Page Down show more rows, and q ends. A worker that does not
    answer is asked on. In a pipe, and with --once, it prints one table with the rates of one interval.

    Examples:
        keyfold top
        keyfold top --sort lag --once
    """
    if sort not in ORDERS:
        raise UsageError(f"--sort {sort} is no order.", f"Give one of {', '.join(ORDERS)}.")
    with asked() as client:
        if once or as_json or not (is_terminal(sys.stdout) and sys.stdin.isatty()):
            before = sample(client, SYSTEM_CLOCK)
            SYSTEM_CLOCK.sleep_ms(int(interval * 1000))
            shown = sorted(rows(before, sample(client, SYSTEM_CLOCK)), key=ORDERS[sort])
            if as_json:
                say_json({"format_version": 1, "connectors": shown})
            else:
                say(text(shown))
            return
        with suppress(KeyboardInterrupt):  # a way to end it, as q
            _show(TopSampler(client, interval), sort)


def sample(client: RestClient, clock: Durations) -> TopSample:
    """Asks a worker for states and metrics, and takes the time of the metrics by `clock`.

    Raises UnreachableError, also for an answer of another form.
    """
    from prometheus_client.parser import text_string_to_metric_families

    from connectors.rest.client import ShownRun

    known = client.read(_PATH, dict[str, ShownRun])
    metrics, at_ms = client.text("/metrics"), clock.monotonic_ms()
    # Only the lines that count are parsed: with metrics.partitions there are many times as many.
    lines = (line for line in metrics.split("\n") if line.partition("{")[0] in NAMES)
    try:
        series = [
            (each.name, each.labels.get("connector", ""), each.value)
            for family in text_string_to_metric_families("\n".join(lines) + "\n")
            for each in family.samples
        ]
    except ValueError:
        raise client.no_worker("its metrics have another form") from None
    states = {name: TopState(each.status.connector.state, each.status.connector.trace) for name, each in known.items()}
    return TopSample(at_ms, states, values_of(series))


class TopSampler:
    """Asks a worker again and again on a thread: one that does not answer holds up no key.

    `wakes` is the file descriptor that can be read after each answer. The thread ends with the process.
    """

    def __init__(self, client: RestClient, interval_s: float) -> None:
        self.seen = TopSeen(sample(client, SYSTEM_CLOCK))  # replaced by the thread
        self.wakes, self._wake = os.pipe()
        self._client = client
        self._interval_ms = int(interval_s * 1000)
        threading.Thread(target=self._ask, name="top", daemon=True).start()

    def _ask(self) -> None:
        while True:
            SYSTEM_CLOCK.sleep_ms(self._interval_ms)
            outcome: TopSample | str
            try:
                outcome = sample(self._client, SYSTEM_CLOCK)
            except KeyfoldError as error:
                outcome = error.message
            self.seen = after(self.seen, outcome, SYSTEM_CLOCK.monotonic_ms())
            os.write(self._wake, b".")


def _show(samples: TopSampler, sort: str) -> None:
    """Shows rows on the terminal until q."""
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    console, first = Console(), 0
    with _keys(), Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            seen = samples.seen
            shown: list[TopRow] = sorted(rows(seen.before, seen.now), key=ORDERS[sort])
            width, height = console.size
            said = notice(seen, SYSTEM_CLOCK.monotonic_ms())
            lines = screen(shown, width, height, first, said)
            live.update(Text.from_ansi(lines, no_wrap=True, overflow="crop"), refresh=True)
            for key in _pressed(samples.wakes):
                if key == "q":
                    return
                sort = KEYS.get(key, sort)
                first = moved(first, key, fitting_rows(shown, height), len(shown))


def _pressed(wakes: int) -> list[str]:
    """Waits a second at most for keys, or for `wakes`; returns the keys, q if the terminal has gone."""
    ready, _, _ = select.select([sys.stdin, wakes], [], [], 1.0)
    if wakes in ready:
        os.read(wakes, _KEY_BYTES)
    if sys.stdin not in ready:
        return []
    pressed = os.read(sys.stdin.fileno(), _KEY_BYTES)
    return keys_in(pressed) if pressed else ["q"]


@contextmanager
def _keys() -> Iterator[None]:
    """Hands on each key at once, unseen, during the block."""
    import termios
    import tty

    kept = termios.tcgetattr(sys.stdin)
    try:
        tty.setcbreak(sys.stdin)
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, kept)
