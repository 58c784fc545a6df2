"""A schema registry over HTTP, with what tests put into it."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import fastavro

from tests.support.memory.schema_registry import MemoryRegistry, served


class Registry:
    """A registry that the converters of a test ask over HTTP."""

    def __init__(self, url: str, memory: MemoryRegistry) -> None:
        self.url = url
        self.memory = memory

    def settings(self, name: str = "Avro", side: str = "value") -> dict[str, str]:
        """Returns the settings of a converter of values, or keys."""
        return {f"{side}.converter": f"keyfold.{name}", f"{side}.converter.schema.registry.url": self.url}

    def avro(self, schema: Any, value: Any) -> bytes:
        """Returns a message in Avro."""
        written = io.BytesIO()
        fastavro.schemaless_writer(written, fastavro.parse_schema(schema), value)
        return self.head(schema) + written.getvalue()

    def head(self, schema: Any, **more: Any) -> bytes:
        """Registers a schema, and returns what stands before its data."""
        return b"\0" + self.memory.add(schema, **more).to_bytes(4, "big")


def served_registry() -> Iterator[Registry]:
    """Yields a registry without schemas: `registry = pytest.fixture(served_registry)`."""
    memory = MemoryRegistry()
    with served(memory) as url:
        yield Registry(url, memory)
