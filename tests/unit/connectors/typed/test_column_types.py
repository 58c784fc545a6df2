"""Snapshots with a column for each field: what is in them, and what of a record that fits none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.support.engine import row
from tests.support.typed_snapshots import TypedConnector

PLAIN = {"value.converter": "keyfold.Json", "value.converter.schemas.enable": "false"}


def _json(**fields: Any) -> bytes:
    return json.dumps(fields).encode()


def test_fields_of_plain_json_are_columns(tmp_path: Path) -> None:
    """Each field has a column of its type, nested ones too, and the metadata columns follow."""
    connector = TypedConnector(tmp_path, PLAIN)
    connector.fold(
        [
            row(0, 0, b"b", _json(status="new", total=1.5, tags=["x"], at={"city": "Bern"})),
            row(0, 1, b"a", _json(status="paid", total=2, n=None)),
            row(0, 2, b"gone", None),
        ]
    )
    taken = connector.take()
    assert taken.table.schema.names == [
        "status", "total", "tags", "at", "_key", "_partition", "_offset", "_timestamp", "_headers", "_rest",
    ]  # fmt: skip
    assert taken.table.select(["_key", "status", "total", "tags", "at"]).to_pylist() == [
        {"_key": b"a", "status": "paid", "total": 2.0, "tags": None, "at": None},
        {"_key": b"b", "status": "new", "total": 1.5, "tags": ["x"], "at": {"city": "Bern"}},
    ]
    assert (taken.manifest.format_version, taken.manifest.records, taken.manifest.tombstones_excluded) == (2, 2, 1)
