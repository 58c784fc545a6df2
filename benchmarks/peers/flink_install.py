"""Fetches what Flink runs on into the user's cache: a virtual environment of its own, and its connector to Kafka.

apache-flink needs other versions of PyArrow, pandas and py4j than keyfold. Its wheels bring Flink's JAR files, but not
the connector, which comes from Maven as the embedded broker's files do, and is checked by its digest.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from benchmarks.harness.environments import python_with
from benchmarks.harness.row import MissingError
from connectors.errors import UnreachableError
from connectors.jvm.artifacts import retrieve
from connectors.jvm.cache import default_cache

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


def flink_python(cache: Path | None = None, install: Callable[[str, Path, Path], None] | None = None) -> Path:
    """Returns the Python of Flink's environment below `cache`, which is made on first use.

    Raises:
        MissingError: it cannot be installed.
    """
    return python_with("apache-flink", VERSION, cache or default_cache(), install)


def kafka_connector(
    cache: Path | None = None, *, fetch: Callable[[str, Path, Path], None] = retrieve, sha256: str = _CONNECTOR_SHA256
) -> Path:
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
                fetch(_MODULE, Path(scratch), Path(scratch, "jars"))
            except UnreachableError as error:
                raise MissingError(f"{name} could not be fetched from Maven") from error
            fetched = Path(scratch, "jars", name)
            if hashlib.sha256(fetched.read_bytes()).hexdigest() != sha256:
                raise MissingError(f"{name} came changed from Maven")
            fetched.rename(root / name)
    return root / name
