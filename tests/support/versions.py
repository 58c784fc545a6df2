"""Tries keyfold with each Python, Java and PySpark that it says it works with, as far as this machine has them.

    python -m tests.support.versions             all, with a table at the end; 1 if one of them failed
    python -m tests.support.versions java-21     some, by their names

Each gets an environment of its own below build/versions, the demo, and the tests of SELECTED. Versions that are not
here are skipped by name. Pythons are looked for on the PATH and among pyenv's, Javas in JAVA_HOMES (folders, with
colons between them) and in /usr/lib/jvm; PySpark comes from the index that pip uses.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from msgspec import Struct

from connectors.progress.terminal import table
from tests.support.cli import ROOT

PYTHONS: Final = ("3.11", "3.12", "3.13")
JAVAS: Final = ("17", "21", "25")
PYSPARKS: Final = ("4.3.0",)
"""Beside the one of constraints.txt, with which everything else is tried."""
SELECTED: Final = (
    *("tests/unit/connectors/spark", "tests/unit/connectors/jvm", "tests/unit/compactor/fold"),
    *("tests/spark/test_fold.py", "tests/spark/test_ingest.py", "tests/spark/test_publish.py"),
    *("tests/spark/test_private.py", "tests/spark/test_snapshot.py", "tests/spark/test_start_failures.py"),
    *("tests/e2e/test_once.py", "tests/e2e/test_elsewhere.py", "tests/e2e/test_without_private.py"),
)
"""What meets Python, Java and Spark: starts, tasks in Python, private switches of Spark, a worker with a broker."""
_FOLDER: Final = ROOT / "build" / "versions"
_DEMO_S: Final = 900
_TESTS_S: Final = 3_600


class Combination(Struct, frozen=True, kw_only=True):
    """A version to try: the Python and the Java that it runs on, and a PySpark in place of the pinned one.

    `missing` says what of it is not on this machine.
    """

    name: str
    python: Path | None = None
    java: Path | None = None
    pyspark: str | None = None
    missing: str | None = None


def combinations(pythons: Mapping[str, Path], javas: Mapping[str, Path]) -> list[Combination]:
    """Returns what is tried: each Python, each Java and each PySpark, with this process's Python otherwise."""
    own = Path(sys.executable)
    return [
        *(
            Combination(name=f"python-{each}", python=pythons.get(each), missing=_missing("Python", each, pythons))
            for each in PYTHONS
        ),
        *(
            Combination(name=f"java-{each}", python=own, java=javas.get(each), missing=_missing("Java", each, javas))
            for each in JAVAS
        ),
        *(Combination(name=f"pyspark-{each}", python=own, pyspark=each) for each in PYSPARKS),
    ]


def _missing(what: str, version: str, there: Mapping[str, Path]) -> str | None:
    return None if version in there else f"no {what} {version} on this machine"


def find_pythons() -> dict[str, Path]:
    """Returns the interpreters of PYTHONS that this machine has, by their versions."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions")
    found = {}
    for version in PYTHONS:
        places = [*sorted(pyenv.glob(f"{version}.*/bin/python")), shutil.which(f"python{version}")]
        works = [Path(place) for place in places if place and _is_python(place, version)]
        found.update({version: works[0]} if works else {})
    return found


def _is_python(place: str | Path, version: str) -> bool:
    asked = [str(place), "-c", "import sys, venv, ensurepip; print('%d.%d' % sys.version_info[:2])"]
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    return done.stdout.strip() == version


def find_javas() -> dict[str, Path]:
    """Returns the homes of JAVAS that this machine has, by their major versions."""
    named = [Path(home) for home in os.environ.get("JAVA_HOMES", "").split(os.pathsep) if home]
    homes = [*named, *sorted(Path("/usr/lib/jvm").glob("*"))]
    found: dict[str, Path] = {}
    for home in homes:
        release = home / "release"
        text = release.read_text(encoding="utf-8") if release.is_file() and (home / "bin" / "java").is_file() else ""
        if match := re.search(r'^JAVA_VERSION="(\d+)', text, re.MULTILINE):
            found.setdefault(match[1], home)
    return found


def constraints(text: str, pyspark: str | None) -> str:
    """Returns the constraints `text` with another version of PySpark."""
    return text if pyspark is None else re.sub(r"(?m)^pyspark==.*$", f"pyspark=={pyspark}", text)


def install(chosen: Combination) -> Path:
    """Makes the environment of `chosen` and returns its Python; raises CalledProcessError."""
    assert chosen.python is not None
    place = _FOLDER / chosen.name
    shutil.rmtree(place, ignore_errors=True)
    subprocess.run([chosen.python, "-m", "venv", place], check=True)
    own = place / "constraints.txt"
    own.write_text(constraints((ROOT / "constraints.txt").read_text(encoding="utf-8"), chosen.pyspark), "utf-8")
    python = place / "bin" / "python"
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--constraint", str(own)]
    quiet = {**os.environ, "PYTHONWARNINGS": "ignore"}
    subprocess.run([*pip, "pip", "setuptools"], check=True)
    subprocess.run([*pip, "--no-build-isolation", "--editable", f"{ROOT}[bench,demo,test]"], check=True, env=quiet)
    return python


def attempt(chosen: Combination) -> str:
    """Installs `chosen` and runs what there is to run; returns `ok`, what failed, or why it was skipped."""
    if chosen.missing:
        return f"skipped: {chosen.missing}"
    try:
        python = install(chosen)
    except subprocess.CalledProcessError as error:
        return f"failed: could not be installed (exit code {error.returncode})"
    around = {**os.environ, **({"JAVA_HOME": str(chosen.java)} if chosen.java else {})}
    demo = [str(python), "-m", "connectors.cli.main", "demo", "--dir", str(_FOLDER / f"{chosen.name}-demo")]
    if code := _run(demo, around, _DEMO_S):
        return f"failed: the demo ended with {code}"
    code = _run([str(python), "-m", "pytest", "-q", "-n", "0", *SELECTED], around, _TESTS_S)
    return f"failed: the tests ended with {code}" if code else "ok"


def _run(command: Sequence[str], around: Mapping[str, str], seconds: float) -> int:
    try:
        return subprocess.run(command, cwd=ROOT, env=around, timeout=seconds, check=False).returncode
    except subprocess.TimeoutExpired:
        return -1


def main(names: Iterable[str]) -> int:
    """Tries all combinations, or those of `names`; prints a table. Returns the exit code."""
    wanted = set(names)
    rows = []
    for chosen in combinations(find_pythons(), find_javas()):
        if not wanted or chosen.name in wanted:
            print(f"== {chosen.name}", flush=True)
            begin = time.monotonic()
            rows.append((chosen.name, attempt(chosen), round(time.monotonic() - begin)))
    print(table(("VERSION", "RESULT", "SECONDS"), rows))
    return int(any(result.startswith("failed") for _, result, _ in rows))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
