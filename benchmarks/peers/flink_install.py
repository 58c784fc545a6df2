"""Fetches what Flink runs on into the user's cache: a virtual environment of its own, and its connector to Kafka.

apache-flink needs other versions of PyArrow, pandas and py4j than keyfold. Its wheels bring Flink's JAR files, but not
the connector, which comes from Maven as the embedded broker's files do, and is checked by its digest.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
import venv
from pathlib import Path
from typing import Final

from benchmarks.harness.row import MissingError
from connectors.errors import UnreachableError
from connectors.jvm.artifacts import default_cache, retrieve

VERSION: Final = "2.0.2"
"""The newest of the release for which the connector is made."""
CONNECTOR_VERSION: Final = "4.0.1-2.0"
_CONNECTOR_SHA256: Final = "c7127a6518fba5d6b75eb4692229192e7147ea378e69c7b7cf16d0494057b0c3"
_MODULE: Final = f"""<ivy-module version="2.0">
  <info organisation="keyfold" module="benchmarks"/>
  <configurations><conf name="default"/></configurations>
  <dependencies>
    <dependency org="org.apache.flink" name="flink-sql-connector-kafka" rev="{CONNECTOR_VERSION}"
                conf="default->default"/>
  </dependencies>
</ivy-module>
"""
_LONGEST_S: Final = 1_200.0


def flink_python(cache: Path | None = None) -> Path:
    """Returns the Python of Flink's environment below `cache`, which is made on first use.

    Raises:
        MissingError: it cannot be installed.
    """
    found = f"apache-flink-{VERSION}-{sys.version_info.major}.{sys.version_info.minor}"
    target = (cache or default_cache()) / found
    python = target / "bin" / "python"
    done = target / ".installed"  # an environment knows its own path: it cannot be made elsewhere and moved here
    if not done.exists():
        _install(target, python)
        done.touch()
    return python


def kafka_connector(cache: Path | None = None) -> Path:
    """Returns the JAR file of Flink's connector to Kafka below `cache`, which is fetched on first use.

    Raises:
        MissingError: Maven's repository cannot be reached, or gives another file.
    """
    root = cache or default_cache()
    name = f"flink-sql-connector-kafka-{CONNECTOR_VERSION}.jar"
    if not (root / name).exists():
        root.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".fetch-", dir=root) as scratch:
            try:
                retrieve(_MODULE, Path(scratch), Path(scratch, "jars"))
            except UnreachableError as error:
                raise MissingError(f"{name} could not be fetched from Maven") from error
            fetched = Path(scratch, "jars", name)
            if hashlib.sha256(fetched.read_bytes()).hexdigest() != _CONNECTOR_SHA256:
                raise MissingError(f"{name} came changed from Maven")
            fetched.rename(root / name)
    return root / name


def _install(target: Path, python: Path) -> None:
    options = ["--quiet", "--disable-pip-version-check"]
    command = [str(python), "-m", "pip", "install", *options, f"apache-flink=={VERSION}"]
    try:
        venv.create(target, clear=True, with_pip=True)
        subprocess.run(command, capture_output=True, check=True, text=True, timeout=_LONGEST_S)
    except (OSError, subprocess.SubprocessError) as error:
        lines = str(getattr(error, "stderr", None) or error).splitlines()
        raise MissingError(f"apache-flink {VERSION} could not be installed: {lines[-1] if lines else error}") from error
