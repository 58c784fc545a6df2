"""What each case came to: fault and step → outcome and seconds to recover, and the table of it for docs/reliability.md.

`python -m tests.faults.matrix RESULTS.jsonl DOCUMENT.md` writes the table between the document's two markers;
`python -m tests.faults.matrix --keep RESULTS.jsonl` keeps only what need not be tried again at the present commit.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from textwrap import fill
from typing import Final

import msgspec
from msgspec import Struct

from compactor.failpoints import STEPS
from connectors.dev.revision import UNKNOWN, is_exact, revision

VARIABLE: Final = "FAULTS_MATRIX"
"""Environment variable: the file to which results are appended."""
BEGIN: Final = "<!-- matrix: begin (make faults) -->"
END: Final = "<!-- matrix: end -->"
MANY: Final = 6
"""Number of steps from which on a fault has a column of its own."""
GO_ON: Final = "FAULTS_GO_ON"
"""Environment variable: cases are left out whose results are in the file already."""
TRIED: Final = ("compactor", "connectors", "tests/faults", "tests/support", "constraints.txt")
"""What a result depends on; `make faults` writes into a page itself."""
FAILED: Final = "**failed**"
"""How the outcome of a case begins that has failed."""


class Result(Struct, frozen=True, kw_only=True):
    """Result of one case; `seconds_to_recover` is None if there was nothing to recover. `commit`: see `revision`."""

    fault: str
    step: str
    outcome: str
    seconds_to_recover: float | None = None
    seed: int = 0
    commit: str = ""


def present() -> str:
    """Returns the revision of what is tried."""
    return revision(*TRIED)


def append(file: Path, result: Result) -> None:
    """Appends `result` in one write, as processes may share the file."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("ab", buffering=0) as out:
        out.write(msgspec.json.encode(result) + b"\n")


def read(file: Path) -> list[Result]:
    """Reads all results; none if there is no file."""
    lines = file.read_bytes().splitlines() if file.exists() else []
    return [msgspec.json.decode(line, type=Result) for line in lines]


def keep(file: Path, commit: str) -> None:
    """Removes all results from `file` but the `valid` ones of `commit`."""
    kept = valid(read(file), commit)
    file.unlink(missing_ok=True)
    for result in kept:
        append(file, result)


def valid(results: Iterable[Result], commit: str) -> list[Result]:
    """Returns what need not be tried again at `commit`: the last result of each case, if it is of it and no failure."""
    last = {(one.fault, one.step): one for one in results}
    found = last.values() if is_exact(commit) else ()
    return [one for one in found if one.commit == commit and not one.outcome.startswith(FAILED)]


@cache
def already_there() -> frozenset[tuple[str, str]]:
    """Returns fault and step of the cases that are left out; to be asked first before this process appends any."""
    return left_out(present())


def left_out(commit: str) -> frozenset[tuple[str, str]]:
    """Returns fault and step of the cases that need not be tried again at `commit`."""
    named = file()
    if named is None or not os.environ.get(GO_ON):
        return frozenset()
    return frozenset((one.fault, one.step) for one in valid(read(named), commit))


def table(results: Iterable[Result]) -> str:
    """Renders faults tried at many steps as a table of steps and faults, the others a line each."""
    last = {(one.fault, one.step): one for one in results}
    tried = Counter(fault for fault, step in last if step in STEPS)
    cells = {at: one for at, one in last.items() if at[1] in STEPS and tried[at[0]] >= MANY}
    faults = list(dict.fromkeys(fault for fault, _ in cells))
    steps = [step for step in STEPS if any(at[1] == step for at in cells)]
    others = [one for at, one in last.items() if at not in cells]
    return "\n\n".join(filter(None, (_grid(faults, steps, cells), _list(others))))


def commits(results: Iterable[Result]) -> str:
    """Says at which commit the cases ran: at the commonest one, but for those that are named."""
    last = {(one.fault, one.step): one for one in results}
    ran: dict[str, dict[str, list[str]]] = {}
    for (fault, step), one in last.items():
        ran.setdefault(one.commit or UNKNOWN, {}).setdefault(fault, []).append(step)
    if not ran:
        return ""
    sizes = {commit: sum(map(len, faults.values())) for commit, faults in ran.items()}
    most = max(sizes, key=lambda commit: sizes[commit])
    others = [f"at {commit} {_named(ran[commit])}" for commit in ran if commit != most]
    text = f"All at {most}{' but: ' if others else ''}{'; '.join(others)}."
    return fill(text, 118, break_long_words=False, break_on_hyphens=False)


def _named(faults: Mapping[str, Sequence[str]]) -> str:
    return ", ".join(f"*{fault}* ({', '.join(steps)})" for fault, steps in faults.items())


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
    found = list(results)
    parts = (f"{before}{begin}", table(found), commits(found), f"{end}{after}")
    return "\n\n".join(filter(None, parts))


def file() -> Path | None:
    """Returns the file for results; None if there is none."""
    named = os.environ.get(VARIABLE)
    return Path(named) if named else None


if __name__ == "__main__":
    if sys.argv[1] == "--keep":
        keep(Path(sys.argv[2]), present())
    else:
        results, document = map(Path, sys.argv[1:])
        document.write_text(written(document.read_text(encoding="utf-8"), read(results)), encoding="utf-8")
