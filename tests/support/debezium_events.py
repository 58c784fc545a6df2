"""Events of Debezium's own pages (tests/data/debezium-events), as JsonConverter with schemas writes them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from compactor.model.record import SOURCE
from connectors.chain.chain import Chain
from connectors.chain.spec import chain_faults, chain_spec

_FOLDER: Final = Path(__file__).parents[1] / "data" / "debezium-events"
_PLAIN: Final = {
    "key.converter": "keyfold.Json",
    "value.converter": "keyfold.Json",
    "output.key.converter": "keyfold.Json",
    "output.key.converter.schemas.enable": "false",
    "output.value.converter": "keyfold.Json",
    "output.value.converter.schemas.enable": "false",
}
"""Schemas in, plain JSON out."""


def events_of(connector: str) -> dict[str, dict[str, Any]]:
    """Returns the events of a connector by their names; each has the schema of `create` unless it has its own."""
    page = json.loads((_FOLDER / f"{connector}.json").read_text(encoding="utf-8"))
    events: dict[str, dict[str, Any]] = page["events"]
    return {name: {"schema": events["create"]["schema"], **event} for name, event in events.items()}


def chain_of(transform: str, **settings: str) -> Chain:
    """Makes the chain with one transform, `row`; `settings` are the transform's, with underscores for dots."""
    own = {f"transforms.row.{name.replace('_', '.')}": text for name, text in settings.items()}
    given = {**_PLAIN, "transforms": "row", "transforms.row.type": transform, **own}
    assert chain_faults(given, str) == ()
    return Chain(chain_spec(given), str)


def sent(chain: Chain, *pairs: tuple[Mapping[str, Any] | None, Mapping[str, Any] | None]) -> list[tuple[Any, Any, str]]:
    """Sends keys and values through a chain; returns key and value of what is left, and why it was rejected.

    Texts in JSON are returned as values; a rejected record stays as it was read.
    """
    rows = [
        {"topic": "t", "partition": 0, "offset": at, "timestamp": 7, "timestamp_type": 0, "key": key, "value": value}
        for at, (key, value) in enumerate((_bytes(key), _bytes(value)) for key, value in pairs)
    ]
    (batch,) = chain.through([pa.RecordBatch.from_pylist(rows, schema=SOURCE)])
    return [
        (_value(row["key"]), _value(row["value"]), row["rejected"] or "")
        for row in batch.select(["key", "value", "rejected"]).to_pylist()
    ]


def _bytes(part: Mapping[str, Any] | None) -> bytes | None:
    return None if part is None else json.dumps(part).encode()


def _value(data: bytes | None) -> Any:
    return None if data is None else json.loads(data)
