"""Makes virtual environments for peers whose packages need other versions than keyfold's."""

from __future__ import annotations

import subprocess
import sys
import venv
from collections.abc import Callable
from pathlib import Path
from typing import Final

from benchmarks.harness.row import MissingError

_LONGEST_S: Final = 1_200.0


def python_with(
    package: str, version: str, cache: Path, install: Callable[[str, Path, Path], None] | None = None
) -> Path:
    """Returns the Python of an environment below `cache` that has `package` from PyPI; it is made on first use.

    `install` makes it: it gets what pip takes, the folder, and the Python that is to be there.

    Raises:
        MissingError: it cannot be installed.
    """
    target = cache / f"{package}-{version}-{sys.version_info.major}.{sys.version_info.minor}"
    python = target / "bin" / "python"
    done = target / ".installed"  # an environment knows its own path: it cannot be made elsewhere and moved here
    if not done.exists():
        (install or pip_install)(f"{package}=={version}", target, python)
        done.touch()
    return python


def pip_install(wanted: str, target: Path, python: Path, create: Callable[..., object] = venv.create) -> None:
    """Makes the environment `target` with `create`, and installs what is `wanted` there."""
    options = ["--quiet", "--disable-pip-version-check"]
    command = [str(python), "-m", "pip", "install", *options, wanted]
    try:
        create(target, clear=True, with_pip=True)
        subprocess.run(command, capture_output=True, check=True, text=True, timeout=_LONGEST_S)
    except (OSError, subprocess.SubprocessError) as error:
        lines = str(getattr(error, "stderr", None) or error).splitlines()
        raise MissingError(f"{wanted} could not be installed: {lines[-1] if lines else error}") from error
