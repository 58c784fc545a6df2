"""Other people's clients of Kafka Connect's REST API, each in an environment of its own, which is kept."""

from __future__ import annotations

import fcntl
import subprocess
import sys
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from connectors.jvm.cache import default_cache

INSTALL_S: Final = 600.0
RUN_S: Final = 60.0
CLIENTS: Final = {
    "kafka-connect-py": ("kafka-connect-py==1.0.0",),
    "kafka-connect-cli": ("kafka-connect-cli==0.2.5",),
    "kafkaconnect": ("kafkaconnect==1.3.1", "click", "requests", "confluent-kafka"),  # it names no dependencies itself
    "kafka-connect-healthcheck": ("kafka-connect-healthcheck==0.3.0",),
}


def folder_of(client: str) -> Path:
    """Returns the folder of a client's commands; it is installed from PyPI where it is not there yet."""
    version = CLIENTS[client][0].partition("==")[2]
    target = default_cache() / "clients" / f"{client}-{version}-{sys.version_info.major}.{sys.version_info.minor}"
    done = target / ".installed"
    with _locked(target):
        if not done.exists():
            venv.create(target, clear=True, with_pip=True)
            install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
            command = [str(target / "bin" / "python"), *install, *CLIENTS[client]]
            subprocess.run(command, check=True, timeout=INSTALL_S)
            done.touch()
    return target / "bin"


def run(client: str, *command: str) -> str:
    """Runs a client's command; returns what it printed. Fails where it ends with another code than 0."""
    name, *arguments = command
    found = subprocess.run(
        [str(folder_of(client) / name), *arguments], capture_output=True, text=True, check=False, timeout=RUN_S
    )
    assert found.returncode == 0, f"{command}: {found.returncode}\n{found.stdout}\n{found.stderr}"
    return found.stdout


@contextmanager
def _locked(target: Path) -> Iterator[None]:
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.with_suffix(".lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
