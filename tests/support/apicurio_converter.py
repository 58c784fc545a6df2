"""Fetches the converters of Apicurio Registry for Kafka Connect."""

from __future__ import annotations

import shutil
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Final

from connectors.jvm.artifacts import retrieve
from connectors.jvm.cache import default_cache

VERSION: Final = "2.6.13.Final"
"""Apicurio's newest converter that Ivy finds: the parent of 3.0.9 is not on Maven Central. It speaks to the registry
3.0.9 by its interface of version 2. 2.6.8 keeps schemas by their names alone, and fails once a column is added."""
_IVY: Final = f"""<ivy-module version="2.0">
  <info organisation="keyfold" module="apicurio-converter"/>
  <configurations><conf name="default"/></configurations>
  <dependencies>
    <dependency org="io.apicurio" name="apicurio-registry-utils-converter" rev="{VERSION}" conf="default->default"/>
  </dependencies>
</ivy-module>
"""


def ensure_converter() -> Path:
    """Returns the folder with the converter's JARs, which are fetched now (26 MB) if they are not there."""
    target = default_cache() / f"apicurio-converter-{VERSION}"
    if not target.is_dir():
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".fetch-", dir=target.parent) as scratch:
            fetched = Path(scratch, "jars")
            retrieve(_IVY, Path(scratch), fetched)
            with suppress(FileExistsError):  # another process was quicker
                shutil.move(fetched, target)
    return target


def avro_settings(side: str, ccompat_url: str) -> dict[str, str]:
    """Returns the settings of an AvroConverter for `side` (key, value) that writes ids as Confluent's does."""
    settings = {
        "": "io.apicurio.registry.utils.converter.AvroConverter",
        ".apicurio.registry.url": ccompat_url.replace("ccompat/v7", "registry/v2"),
        ".apicurio.registry.as-confluent": "true",
        ".apicurio.registry.use-id": "contentId",
    }
    return {f"{side}.converter{more}": text for more, text in settings.items()}
