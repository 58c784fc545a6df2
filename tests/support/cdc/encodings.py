"""The encodings: the settings of both connectors, from docs/cdc.md, and how a value is read here.

Values are read without keyfold's code: JSON by Python's module, Avro by fastavro.
"""

from __future__ import annotations

import base64
import io
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import fastavro
import httpx

from tests.support.cdc.append_table import NAME as VISITS
from tests.support.cdc.meaning import decimal_of
from tests.support.cdc.page import connector, encoding_settings, source_settings
from tests.support.cdc.postgres import USER, Postgres
from tests.support.cdc.tables import SCHEMA, TABLES

Row = Mapping[str, Any]
Read = Callable[[bytes], Row | None]

_DECIMAL: Final = "org.apache.kafka.connect.data.Decimal"
_NO_NAME: Final = re.compile(r"[^A-Za-z0-9_]")
_NO_TOPIC: Final = re.compile(r"[^A-Za-z0-9._-]")
_REGISTRY: Final = "http://127.0.0.1:8080"
"""The registry's address in docs/cdc.md."""

_MORE: Final = {
    "skipped.operations": "none",
    "table.exclude.list": rf"{SCHEMA}\.measured_.*",
    "message.key.columns": ";".join(
        f"{SCHEMA}.{table.name}:{table.message_key}" for table in TABLES if table.message_key
    ),
    "topic.creation.groups": "several",
    "topic.creation.several.include": rf".*\.{SCHEMA}\.(accounts|bulk|renamed)",
    "topic.creation.several.partitions": "3",
    "topic.creation.several.replication.factor": "1",
}
"""What the tables here need beyond the page's settings: truncates are sent, a key is named, topics have partitions."""


@dataclass(frozen=True)
class Encoding:
    """One encoding; `name` is that of its connectors, `prefix` that of Debezium's topics."""

    name: str
    prefix: str
    registry: str
    read: Read

    @property
    def has_source(self) -> bool:
        """Whether it has topics of its own, and not those of another encoding."""
        return self.name == self.prefix

    def source(self, server: Postgres) -> dict[str, str]:
        """Returns the settings of Debezium's connector."""
        own, _ = encoding_settings(self.name)
        here = {
            "database.port": str(server.port),
            "database.user": USER,
            "database.password": server.password,
            "topic.prefix": self.name,
            "slot.name": f"slot_{self.name}",
            "publication.name": f"of_{self.name}",
        }
        return self._with_registry({**source_settings(), **own, **_MORE, **here})

    def keyfold(self, folder: Path) -> dict[str, Any]:
        """Returns the settings of keyfold's connector, with snapshots in `folder`."""
        return self._with_registry(connector(self.name)) | {
            "name": self.name,
            "topics.regex": rf"{self.prefix}\.{SCHEMA}\..*",
            "topics.exclude": rf".*\.(rows|out), .*\.{VISITS}",
            "output.topic": self.output("${topic}"),
            "snapshot.location": str(folder),
            "snapshot.key.format": "bytes",
            "snapshot.value.format": "bytes",
            "errors.deadletterqueue.topic.name": self.dead,
        }

    @property
    def dead(self) -> str:
        """The topic of dead letters."""
        return f"{self.name}.dead"

    def _with_registry(self, settings: dict[str, Any]) -> dict[str, Any]:
        return {
            key: value.replace(_REGISTRY, self.registry) if isinstance(value, str) else value
            for key, value in settings.items()
        }

    def topic(self, table: str) -> str:
        """Returns the topic that Debezium gives a table."""
        return f"{self.prefix}.{SCHEMA}.{_NO_TOPIC.sub('_', table)}"

    def output(self, topic: str) -> str:
        """Returns the output of a topic."""
        return f"{topic}.rows" if self.has_source else f"{topic}.{self.name}"

    def field(self, column: str) -> str:
        """Returns the field that Debezium gives a column: Avro has fewer letters."""
        if self.name != "avro":
            return column
        name = _NO_NAME.sub("_", column)
        return f"_{name}" if name[0].isdigit() else name


def encodings(ccompat_url: str) -> list[Encoding]:
    """Returns JSON with schemas, plain JSON, Avro by the registry, and JSON with schemas that becomes plain JSON."""
    base = ccompat_url.removesuffix("/apis/ccompat/v7")
    readers: dict[str, Read] = {
        "json": _read_json_with_schema,
        "plain": _read_plain_json,
        "avro": _AvroReader(ccompat_url),
        "out": _read_plain_json,
    }
    return [Encoding(name, "json" if name == "out" else name, base, reader) for name, reader in readers.items()]


def _read_plain_json(data: bytes) -> Row | None:
    row: Row | None = json.loads(data, parse_float=Decimal)
    return row


def _read_json_with_schema(data: bytes) -> Row | None:
    message = json.loads(data)
    if message is None or message["payload"] is None:
        return None
    return {
        field["field"]: _with_decimals(field, message["payload"][field["field"]])
        for field in message["schema"]["fields"]
    }


def _with_decimals(schema: Mapping[str, Any], value: Any) -> Any:
    """Returns a value with numbers for Connect's Decimals, which JsonConverter writes as their unscaled bytes."""
    if value is None:
        return None
    if schema["type"] == "array":
        return [_with_decimals(schema["items"], each) for each in value]
    if schema.get("name") == _DECIMAL:
        return decimal_of(base64.b64decode(value), int(schema["parameters"]["scale"]))
    return value


class _AvroReader:
    """Reads Avro in Confluent's wire format; asks the registry once for each id."""

    def __init__(self, url: str) -> None:
        self._url = url
        # Parsed schema by id.
        self._schemas: dict[int, Any] = {}

    def __call__(self, data: bytes) -> Row | None:
        """Reads a value."""
        number = int.from_bytes(data[1:5], "big")
        if number not in self._schemas:
            answer = httpx.get(f"{self._url}/schemas/ids/{number}", timeout=30.0).raise_for_status()
            self._schemas[number] = fastavro.parse_schema(json.loads(answer.json()["schema"]))
        row: Any = fastavro.schemaless_reader(io.BytesIO(data[5:]), self._schemas[number], None)
        return row
