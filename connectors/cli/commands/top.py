"""`keyfold top`: what a worker's connectors do now, asked over REST again and again."""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Final

import typer

from connectors.cli.commands.connectors import Asked, asks_worker
from connectors.cli.options import JsonOption
from connectors.cli.output import say, say_json
from connectors.cli.views.top import KEYS, NAMES, ORDERS, TopRow, TopSample, TopState, rows, text, values_of
from connectors.clock import SYSTEM_CLOCK, Durations
from connectors.errors import UsageError
from connectors.progress.terminal import is_terminal

if TYPE_CHECKING:
    from connectors.rest.client import RestClient

_PATH: Final = "/connectors?expand=status"
_HELP: Final = "sort: " + "  ".join(f"{key} {name}" for key, name in KEYS.items()) + "  q quit"


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

    On a terminal a letter changes the order and q ends. In a pipe, and with --once, it prints one table with
    the rates of one interval.

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
        _show(client, sort, interval)


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


def _show(client: RestClient, sort: str, interval: float) -> None:
    """Shows rows on the terminal until q."""
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    console = Console()
    with _keys(), Live(console=console, screen=True, auto_refresh=False) as live:
        before, now = None, sample(client, SYSTEM_CLOCK)
        due_ms = SYSTEM_CLOCK.monotonic_ms() + int(interval * 1000)
        while True:
            shown: list[TopRow] = sorted(rows(before, now), key=ORDERS[sort])
            lines = f"{text(shown, console.width)}\n\n{_HELP}"
            live.update(Text.from_ansi(lines, no_wrap=True, overflow="crop"), refresh=True)
            key = _pressed((due_ms - SYSTEM_CLOCK.monotonic_ms()) / 1000)
            if key in ("q", ""):
                return
            sort = KEYS.get(key or sort[0], sort)
            if SYSTEM_CLOCK.monotonic_ms() >= due_ms:
                before, now = now, sample(client, SYSTEM_CLOCK)
                due_ms = SYSTEM_CLOCK.monotonic_ms() + int(interval * 1000)


def _pressed(seconds: float) -> str | None:
    """Returns the key that is pressed within `seconds`, None for none, "" if the terminal has gone."""
    ready, _, _ = select.select([sys.stdin], [], [], max(seconds, 0))
    return os.read(sys.stdin.fileno(), 1).decode(errors="replace") if ready else None


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
