"""`make mutants`: changes the rules in compactor/ one by one and lists the changes that no unit test notices.

    python -m tests.support.mutants due,log_to_clean

pyproject.toml, [tool.mutmut], has the modules that are changed, all of them without names, and the tests that are run.
It works in a copy, build/mutants; survivors.txt in it has each change that was not noticed.
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
FOLDER: Final = ROOT / "build" / "mutants"
COPIED: Final = ("compactor", "connectors", "tests", "docs")

KILLED: Final = (1, 3)
SURVIVED: Final = (0,)
UNTESTED: Final = (5, 33)
"""Exit codes that mutmut records for a change: a test failed, no test did, or no test runs the changed code."""


class Score(NamedTuple):
    """The changes of a module: how many were noticed, and the names of those that were not, or that no test runs."""

    module: str
    total: int
    killed: int
    survived: tuple[str, ...]
    untested: tuple[str, ...]

    @property
    def row(self) -> str:
        """Returns the module's row of the table that is printed at the end."""
        other = self.total - self.killed - len(self.survived) - len(self.untested)
        share = 100 * self.killed // self.total if self.total else 100  # never rounded up
        counts = (self.total, self.killed, len(self.survived), len(self.untested), other)
        return f"| `{self.module}` | {' | '.join(map(str, counts))} | {share} % |"


def main(names: Sequence[str]) -> int:
    """Tries all changes of the modules `names`; returns 0 once it has, however many were noticed."""
    try:
        paths = select(names, _settings()["only_mutate"])
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    _copy()
    modules = [f"{'.'.join(path.with_suffix('').parts)}.*" for path in paths]
    command = [sys.executable, "-m", "mutmut", "run", "--max-children", str(os.cpu_count() or 1), *modules]
    code = subprocess.run(command, cwd=FOLDER, check=False).returncode
    if code:
        return code
    scores = [_score(path) for path in paths]
    (FOLDER / "survivors.txt").write_text("".join(text for score in scores for text in _survivors(score)))
    print("\n| module | changes | noticed | not noticed | no test | other | score |\n|---|---|---|---|---|---|---|")
    print("\n".join(score.row for score in scores))
    print(f"\nWhat was not noticed: {FOLDER / 'survivors.txt'}")
    return 0


def select(names: Sequence[str], paths: Sequence[str]) -> list[Path]:
    """Returns those of `paths`, files of modules, that `names` gives without folder and suffix; all without names.

    Raises:
        ValueError: a name is none of theirs.
    """
    by_name = {Path(path).stem: Path(path) for path in paths}
    unknown = [name for name in names if name not in by_name]
    if unknown:
        raise ValueError(f"No such module: {', '.join(unknown)}. There are {', '.join(by_name)}.")
    return [by_name[name] for name in names or by_name]


def _settings() -> dict[str, list[str]]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["mutmut"]


def _copy() -> None:
    shutil.rmtree(FOLDER, ignore_errors=True)
    for name in COPIED:
        shutil.copytree(ROOT / name, FOLDER / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", FOLDER)


def _score(path: Path) -> Score:
    noted = json.loads((FOLDER / "mutants" / f"{path}.meta").read_text())["exit_code_by_key"]
    by_code = {codes: tuple(name for name, code in noted.items() if code in codes) for codes in (SURVIVED, UNTESTED)}
    killed = sum(code in KILLED for code in noted.values())
    return Score(path.stem, len(noted), killed, by_code[SURVIVED], by_code[UNTESTED])


def _survivors(score: Score) -> Iterator[str]:
    for name in (*score.survived, *score.untested):
        command = [sys.executable, "-m", "mutmut", "show", name]
        yield subprocess.run(command, cwd=FOLDER, check=True, capture_output=True, text=True).stdout


if __name__ == "__main__":
    sys.exit(main([name for name in ",".join(sys.argv[1:]).split(",") if name]))
