"""What each case came to: fault and step → outcome and seconds to recover, and the table of it for docs/reliability.md.

`python -m tests.faults.matrix RESULTS.jsonl DOCUMENT.md` writes the table between the document's two markers.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from compactor.failpoints import STEPS

VARIABLE: Final = "FAULTS_MATRIX"
"""Environment variable: the file to which results are appended."""
BEGIN: Final = "<!-- matrix: begin (make faults) -->"
END: Final = "<!-- matrix: end -->"
MANY: Final = 6
"""Number of steps from which on a fault has a column of its own."""


class Result(Struct, frozen=True, kw_only=True):
    """Result of one case; `seconds_to_recover` is None if there was nothing to recover."""

    fault: str
    step: str
    outcome: str
    seconds_to_recover: float | None = None
    seed: int = 0


def append(file: Path, result: Result) -> None:
    """Appends `result` in one write, as processes may share the file."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("ab", buffering=0) as out:
        out.write(msgspec.json.encode(result) + b"\n")


def read(file: Path) -> list[Result]:
    """Reads all results; none if there is no file."""
    lines = file.read_bytes().splitlines() if file.exists() else []
    return [msgspec.json.decode(line, type=Result) for line in lines]


def table(results: Iterable[Result]) -> str:
    """Renders faults tried at many steps as a table of steps and faults, the others a line each."""
    last = {(one.fault, one.step): one for one in results}
    tried = Counter(fault for fault, step in last if step in STEPS)
    cells = {at: one for at, one in last.items() if at[1] in STEPS and tried[at[0]] >= MANY}
    faults = list(dict.fromkeys(fault for fault, _ in cells))
    steps = [step for step in STEPS if any(at[1] == step for at in cells)]
    others = [one for at, one in last.items() if at not in cells]
    return "\n\n".join(filter(None, (_grid(faults, steps, cells), _list(others))))


def _grid(faults: Sequence[str], steps: Sequence[str], cells: Mapping[tuple[str, str], Result]) -> str:
    if not steps:
        return ""
    rows = [_row("step", *faults), _row(*["---"] * (len(faults) + 1))]
    rows += [_row(f"`{step}`", *(_cell(cells.get((fault, step))) for fault in faults)) for step in steps]
    return "\n".join(rows)


def _list(results: Sequence[Result]) -> str:
    if not results:
        return ""
    rows = [_row("fault", "when", "outcome, seconds to recover"), _row("---", "---", "---")]
    return "\n".join([*rows, *(_row(one.fault, one.step, _cell(one)) for one in results)])


def _row(*cells: str) -> str:
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"


def _cell(result: Result | None) -> str:
    if result is None:
        return ""
    seconds = result.seconds_to_recover
    return result.outcome if seconds is None else f"{result.outcome}, {seconds:.1f}"


def written(document: str, results: Iterable[Result]) -> str:
    """Returns `document` with the table between its markers; raises ValueError if it has none."""
    before, begin, rest = document.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"The document has no lines {BEGIN!r} and {END!r}.")
    return f"{before}{begin}\n\n{table(results)}\n\n{end}{after}"


def file() -> Path | None:
    """Returns the file for results; None if there is none."""
    named = os.environ.get(VARIABLE)
    return Path(named) if named else None


if __name__ == "__main__":
    results, document = map(Path, sys.argv[1:])
    document.write_text(written(document.read_text(encoding="utf-8"), read(results)), encoding="utf-8")
