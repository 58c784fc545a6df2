"""`python -m tests.support.fuzz --minutes 60`: tries every target with new seeds until the time is over.

Prints the target, the seed and the smallest case that fails; `--seed N` tries that seed again. A call that does not end
ends the process, with the line of code that it is in; the case is in `build/fuzz.txt`.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from pathlib import Path
from typing import Any, Final

from hypothesis import HealthCheck, Phase, given, seed, settings

from tests.support.fuzz.measured import check, limit_memory
from tests.support.fuzz.targets import Target, targets

LAST: Final = Path("build/fuzz.txt")
"""The case that is tried now."""
_HEAVY: Final = 5
"""How many times fewer cases of heavy targets are tried."""


def main(arguments: list[str]) -> int:
    """Tries targets; returns how many have failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.support.fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=0, help="how long; 0: one round")
    parser.add_argument("--seed", type=int, default=None, help="the seed of the first round; by chance without it")
    parser.add_argument("--examples", type=int, default=50, help="cases of each target a round")
    parser.add_argument("--only", default="", help="a part of the names of targets to try")
    given_ = parser.parse_args(arguments)
    limit_memory()
    LAST.parent.mkdir(exist_ok=True)
    end = time.monotonic() + 60 * given_.minutes
    number = random.randrange(1 << 32) if given_.seed is None else given_.seed
    every = [one for one in targets() if given_.only in one.name]
    failed: set[str] = set()
    tried = 0
    while True:
        for target in every:
            if target.name not in failed and not _passes(target, number, given_.examples):
                failed.add(target.name)
            tried += 1
        number += 1
        if time.monotonic() >= end:
            break
    print(f"{tried} rounds of {len(every)} targets, {len(failed)} failed", flush=True)
    return len(failed)


def _passes(target: Target, number: int, examples: int) -> bool:
    """Tries one target with one seed, and says what fails."""

    @seed(number)
    @settings(
        max_examples=max(1, examples // _HEAVY) if target.heavy else examples,
        database=None,
        deadline=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )
    @given(target.cases)
    def tried(case: Any) -> None:
        LAST.write_text(f"{target.name}, seed {number}\n{case!r:.100000}\n", encoding="utf-8", errors="replace")
        check(target.name, target.call, case)

    try:
        tried()
    except AssertionError as error:
        notes = "\n".join(getattr(error, "__notes__", ()))
        print(
            f"FAILED {target.name}, seed {number}: {error}\n{notes[:3_000]}\n  by {error.__cause__!r:.500}", flush=True
        )
        return False
    return True


if __name__ == "__main__":
    sys.exit(min(main(sys.argv[1:]), 100))
