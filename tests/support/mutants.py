"""`make mutants`: changes the rules in compactor/ one by one and tells which changes no unit test notices.

    python -m tests.support.mutants due,dirt

What is changed and which tests are run stands in pyproject.toml, [tool.mutmut]; without names it is every module there.
Everything happens in a copy, build/mutants; survivors.txt in it has each change that was not noticed.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[2]
PLACE: Final = ROOT / "build" / "mutants"
COPIED: Final = ("compactor", "connectors", "tests", "docs")

KILLED: Final = (1, 3)
SURVIVED: Final = (0,)
UNTESTED: Final = (5, 33)
"""Exit codes that mutmut notes of a change: a test failed, none did, or none runs what was changed."""


class Score(NamedTuple):
    """How many changes of a module were noticed, and the names of those that were not, or that no test runs."""

    module: str
    total: int
    killed: int
    survived: tuple[str, ...]
    untested: tuple[str, ...]

    @property
    def row(self) -> str:
        """A row of the table that is printed at the end."""
        other = self.total - self.killed - len(self.survived) - len(self.untested)
        share = 100 * self.killed // self.total if self.total else 100  # never rounded up
        counts = (self.total, self.killed, len(self.survived), len(self.untested), other)
        return f"| `{self.module}` | {' | '.join(map(str, counts))} | {share} % |"


def main(modules: Sequence[str]) -> int:
    """The exit code: 0 once all changes were tried, however many were noticed."""
    known = [Path(path).stem for path in _settings()["only_mutate"]]
    strange = [name for name in modules if name not in known]
    if strange:
        print(f"No such module: {', '.join(strange)}. There are {', '.join(known)}.", file=sys.stderr)
        return 2
    _copy()
    names = [f"compactor.{name}.*" for name in modules]
    command = [sys.executable, "-m", "mutmut", "run", "--max-children", str(os.cpu_count() or 1), *names]
    code = subprocess.run(command, cwd=PLACE, check=False).returncode
    if code:
        return code
    scores = [_score(name) for name in modules or known]
    (PLACE / "survivors.txt").write_text("".join(text for score in scores for text in _survivors(score)))
    print("\n| module | changes | noticed | not noticed | no test | other | score |\n|---|---|---|---|---|---|---|")
    print("\n".join(score.row for score in scores))
    print(f"\nWhat was not noticed: {PLACE / 'survivors.txt'}")
    return 0


def _settings() -> dict[str, list[str]]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["mutmut"]


def _copy() -> None:
    shutil.rmtree(PLACE, ignore_errors=True)
    for name in COPIED:
        shutil.copytree(ROOT / name, PLACE / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", PLACE)


def _score(module: str) -> Score:
    noted = json.loads((PLACE / "mutants" / "compactor" / f"{module}.py.meta").read_text())["exit_code_by_key"]
    by_code = {codes: tuple(name for name, code in noted.items() if code in codes) for codes in (SURVIVED, UNTESTED)}
    killed = sum(code in KILLED for code in noted.values())
    return Score(module, len(noted), killed, by_code[SURVIVED], by_code[UNTESTED])


def _survivors(score: Score) -> Iterator[str]:
    for name in (*score.survived, *score.untested):
        command = [sys.executable, "-m", "mutmut", "show", name]
        yield subprocess.run(command, cwd=PLACE, check=True, capture_output=True, text=True).stdout


if __name__ == "__main__":
    sys.exit(main([name for name in ",".join(sys.argv[1:]).split(",") if name]))
