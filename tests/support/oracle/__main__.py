"""`make histories`: runs random histories, one for each seed, and checks the promises after every step.

    python -m tests.support.oracle --seeds 0-199 --steps 40

ends with 1 at the first history that breaks a promise or fails, and says which steps are enough for that.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import time
from collections.abc import Iterable, Iterator
from multiprocessing import get_context
from typing import Final

from tests.support.oracle import steps
from tests.support.oracle.histories import history
from tests.support.oracle.runner import Outcome, run_seed, shrink, silence_logs

_ENUM: Final = re.compile(r"<(\w+\.\w+): [^>]*>")
"""Matches the repr of an enum's member; the group is its name."""


def main(arguments: list[str] | None = None) -> int:
    """Runs the histories; returns 0 if all promises held, else 1."""
    options = _arguments(arguments)
    began = time.monotonic()
    print(f"{len(options.seeds)} histories of {options.steps} steps, {options.processes} at a time", flush=True)
    for number, one in enumerate(_ran(options.seeds, options.steps, options.processes), start=1):
        if one.failure is not None:
            _report(one, options.steps)
            return 1
        if number % 10 == 0 or number == len(options.seeds):
            seconds = time.monotonic() - began
            print(
                f"{number} of {len(options.seeds)} kept every promise, to seed {one.seed}, {seconds:.0f} s", flush=True
            )
    return 0


def _arguments(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.support.oracle", description="Histories by chance.")
    parser.add_argument("--seeds", type=_range, default=range(200), help="0-199, or 17 for one alone")
    parser.add_argument("--steps", type=int, default=40, help="the length of each history")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="so many beside each other")
    return parser.parse_args(arguments)


def _range(text: str) -> range:
    first, _, last = text.partition("-")
    found = range(int(first), int(last or first) + 1)
    if not found:
        raise argparse.ArgumentTypeError(f"{text} holds no seed: write FIRST-LAST, as in 0-199")
    return found


def _ran(seeds: Iterable[int], length: int, processes: int) -> Iterator[Outcome]:
    """Yields outcomes in the order of seeds, so that the first failure is always the same."""
    work = ((seed, length) for seed in seeds)
    if processes == 1:
        yield from map(run_seed, work)
        return
    with get_context("spawn").Pool(processes) as pool:
        yield from pool.imap(run_seed, work)


def _report(one: Outcome, length: int) -> None:
    silence_logs()
    print(f"\nseed {one.seed}: {one.failure}", flush=True)
    print(f"\nAgain: make histories SEEDS={one.seed} STEPS={length}\nLooking for fewer steps that fail …", flush=True)
    print("\n".join(["These are enough:", *_lines(shrink(history(one.seed, length)))]), flush=True)


def _lines(found: Iterable[steps.AnyStep]) -> Iterator[str]:
    yield "["
    yield from (_ENUM.sub(r"\1", f"    {step!r},") for step in found)
    yield "]"


if __name__ == "__main__":
    sys.exit(main())
