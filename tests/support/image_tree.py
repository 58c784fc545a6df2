"""The image's folders without a container engine: docker/steps.sh over the packages that are installed here."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from importlib.metadata import Distribution, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
STEPS = ROOT / "docker" / "steps.sh"
BLOCK = 4_096
BASE_BYTES = 165_000_000
"""At most python:3.11-slim-bookworm, whose size no engine is here to tell.

Debian's packages of priority `required`, apt, certificates, time zones and the libraries that Python is linked with
have 92 MB, unpacked without what slim images leave out: documents, man pages, translations. Python 3.11 without its
tests has 57 MB, of which a stripped library would save 17; its pip and setuptools have 15 MB.
"""
TOOLS_BYTES = 6_000_000
"""procps with its libraries: 2.8 MB by Installed-Size; the account's files."""
JAVA_BYTES = 73_000_000
"""What step `java` makes has 70 MB; tests/watch makes it and looks."""
COPIED = ("pyproject.toml", "constraints.txt", "README.md", "LICENSE", "compactor", "connectors")
"""What the Dockerfile copies before step `install`."""


def run_step(name: str, *arguments: object, **environment: str) -> str:
    """Runs a step of docker/steps.sh and returns what it said. Raises AssertionError if it fails."""
    done = subprocess.run(
        ["sh", STEPS, name, *map(str, arguments)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def install(folder: Path, target: Path) -> Path:
    """Makes the environment `target` as the image has it before it is slimmed; `folder` is for a copy of the sources.

    The packages are those that are installed here, by hard links.
    """
    for name in COPIED:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, folder / name)
    here = {
        "PYTHONPATH": str(distribution("setuptools").locate_file("")),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    options = {"STEPS_PIP": "--no-deps --no-index", "STEPS_VENV": "--without-pip"}
    run_step("install", folder, target, **here, **options)
    place(target, os.link)
    return target


def packages() -> list[Distribution]:
    """Returns the packages that `keyfold[demo]` needs."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted: dict[str, set[str]] = {}
    for requirement in map(Requirement, [*project["dependencies"], *project["optional-dependencies"]["demo"]]):
        _walk(requirement.name, requirement.extras, wanted)
    return [distribution(name) for name in sorted(wanted)]


def _walk(name: str, extras: set[str], wanted: dict[str, set[str]]) -> None:
    known = wanted.setdefault(canonicalize_name(name), set())
    if known and extras <= known:
        return
    known |= extras | {""}
    for requirement in map(Requirement, distribution(name).requires or ()):
        marker = requirement.marker
        if marker is None or any(marker.evaluate({"extra": extra}) for extra in known):
            _walk(requirement.name, requirement.extras, wanted)


def place(target: Path, put: Callable[[Path, Path], None]) -> Path:
    """Puts each file of the packages below the environment `target`; returns its folder of packages."""
    folder = target / "lib" / "python3.11" / "site-packages"
    for source, relative in _files():
        path = folder / relative
        path.parent.mkdir(parents=True, exist_ok=True)
        put(source, path)
    return folder


def _files() -> Iterator[tuple[Path, str]]:
    for package in packages():
        for file in package.files or ():
            source = Path(str(package.locate_file(file)))
            if not os.path.normpath(file).startswith("..") and source.is_file():
                yield source, os.path.normpath(file)


def empty_like(source: Path, path: Path) -> None:
    """Makes a file of the same length that takes no room."""
    path.touch()
    os.truncate(path, source.stat().st_size)


def bytes_of(folder: Path) -> int:
    """Returns the bytes of all files below `folder`, each in whole blocks, as a file system keeps them."""
    files = (path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    return sum(-(-path.stat().st_size // BLOCK) * BLOCK for path in files)
