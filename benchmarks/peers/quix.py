"""Quix Streams beside keyfold, in a virtual environment of its own: it asks for an older confluent-kafka."""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path
from typing import Final
from uuid import uuid4

from benchmarks.harness import process
from benchmarks.harness.datasets import make
from benchmarks.harness.process import Used
from benchmarks.peers.committed import ends, reached
from benchmarks.peers.peers import HERE, MissingError
from connectors.jvm.artifacts import default_cache

VERSION: Final = "3.28.1"
_PACKAGES: Final = (f"quixstreams=={VERSION}",)
_LONGEST_S: Final = 600.0


class QuixStreams:
    """The latest value of each key in its RocksDB state, sent on as it comes; exactly once, else with its defaults."""

    name = "Quix Streams"

    def run(self, bootstrap: str, topic: str, folder: Path) -> Used:
        """See Peer."""
        python = quix_python(default_cache())
        group = f"quix-{uuid4().hex[:8]}"
        make(bootstrap, f"{group}-out", len(ends(bootstrap, topic)), "compact")
        arguments = [bootstrap, topic, f"{group}-out", group, str(folder / "state")]
        command = [str(python), str(HERE / "quix_latest.py"), *arguments]
        with process.running(command, folder / "quix.log") as started:
            return started.used(reached(bootstrap, group, topic))


def quix_python(cache: Path) -> Path:
    """The Python of its environment below `cache`, made on first use. Raises MissingError where that cannot be."""
    target = cache / f"quixstreams-{VERSION}-{sys.version_info.major}.{sys.version_info.minor}"
    python = target / "bin" / "python"
    done = target / ".installed"  # an environment knows its own path: it cannot be made elsewhere and moved here
    if not done.exists():
        _install(target, python)
        done.touch()
    return python


def _install(target: Path, python: Path) -> None:
    try:
        venv.create(target, clear=True, with_pip=True)
        command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *_PACKAGES]
        subprocess.run(command, capture_output=True, check=True, text=True, timeout=_LONGEST_S)
    except (OSError, subprocess.SubprocessError) as error:
        lines = str(getattr(error, "stderr", None) or error).splitlines()
        raise MissingError(f"quixstreams {VERSION} could not be installed: {lines[-1] if lines else error}") from error
