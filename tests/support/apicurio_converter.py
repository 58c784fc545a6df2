"""Fetches the converters of Apicurio Registry for Kafka Connect."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tests.support.fetched import dependency, ensure_jars, ivy_module

VERSION: Final = "2.6.13.Final"
"""Apicurio's newest converter that Ivy finds: the parent of 3.0.9 is not on Maven Central. It speaks to the registry
3.0.9 by its interface of version 2. 2.6.8 keeps schemas by their names alone, and fails once a column is added."""
_IVY: Final = ivy_module("apicurio-converter", dependency("io.apicurio", "apicurio-registry-utils-converter", VERSION))


def ensure_converter() -> Path:
    """Returns the folder with the converter's JARs, which are fetched now (26 MB) if they are not there."""
    return ensure_jars(f"apicurio-converter-{VERSION}", _IVY)


def avro_settings(side: str, ccompat_url: str) -> dict[str, str]:
    """Returns the settings of an AvroConverter for `side` (key, value) that writes ids as Confluent's does."""
    settings = {
        "": "io.apicurio.registry.utils.converter.AvroConverter",
        ".apicurio.registry.url": ccompat_url.replace("ccompat/v7", "registry/v2"),
        ".apicurio.registry.as-confluent": "true",
        ".apicurio.registry.use-id": "contentId",
    }
    return {f"{side}.converter{more}": text for more, text in settings.items()}
