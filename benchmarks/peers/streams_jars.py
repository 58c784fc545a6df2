"""Kafka Streams' JAR files, fetched once into the user's cache as the embedded broker's are."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Final

from connectors.jvm.artifacts import KAFKA_VERSION, retrieve

_MODULE: Final = f"""<ivy-module version="2.0">
  <info organisation="keyfold" module="benchmarks"/>
  <configurations><conf name="default"/></configurations>
  <dependencies>
    <dependency org="org.apache.kafka" name="kafka-streams" rev="{KAFKA_VERSION}" conf="default->default"/>
  </dependencies>
</ivy-module>
"""


def streams_jars(cache: Path) -> Path:
    """The folder with them. Raises UnreachableError where Maven's repository cannot be reached."""
    target = cache / f"kafka-streams-{KAFKA_VERSION}"
    if not target.is_dir():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".fetch-", dir=cache) as scratch:
            retrieve(_MODULE, Path(scratch), Path(scratch, "jars"))
            Path(scratch, "jars").rename(target)
    return target
