"""A measurement in a process of its own, whose Spark ends with it: nothing of it runs beside what is measured next."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from typing import Final

from benchmarks.process import ROOT

_LONGEST_S: Final = 3_600.0


def values_of(module: str, *arguments: object) -> dict[str, float]:
    """What `python -m module arguments` prints as the last line of its output: values by name, as `tell` does.

    Raises CalledProcessError where it fails, TimeoutExpired after an hour.
    """
    command = [sys.executable, "-m", module, *map(str, arguments)]
    done = subprocess.run(command, stdout=subprocess.PIPE, cwd=ROOT, text=True, check=True, timeout=_LONGEST_S)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def tell(values: Mapping[str, float]) -> None:
    """Says `values` to whoever has asked by `values_of`."""
    print(json.dumps(values), flush=True)
