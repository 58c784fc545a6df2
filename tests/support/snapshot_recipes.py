"""The Python recipes of docs/snapshots.md and docs/tables.md, and the snapshot that they read."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from compactor.snapshot.snapshots import Snapshots
from compactor.storage.local import LocalStorage
from connectors.data.schema import DECIMAL
from tests.support.brokerless import BrokerlessConnector
from tests.support.engine import row
from tests.support.local_spark import LocalSpark
from tests.support.memory.broker import MemoryBroker
from tests.support.memory.storage import MemoryStorage
from tests.support.typed_snapshots import TypedConnector

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE: Final = Path(__file__).parents[2] / "docs" / "snapshots.md"
TABLES: Final = PAGE.with_name("tables.md")
CHOICE: Final = "Which one, and for how long"
"""The heading under which each way to find the newest snapshot stands."""

TYPED: Final = "Typed columns"
"""The heading under which each tool reads a typed snapshot."""

_BLOCK: Final = re.compile(r"(?ms)^## ([^\n]+)$|^```python\n(.*?)^```$")


def recipes(page: Path = PAGE) -> dict[str, list[str]]:
    """Returns the blocks of Python of a page by their heading."""
    found: dict[str, list[str]] = {}
    heading = ""
    for title, code in _BLOCK.findall(page.read_text(encoding="utf-8")):
        heading = title or heading
        if code:
            found.setdefault(heading, []).append(code)
    return found


def snapshots(folder: Path) -> Path:
    """Takes the snapshot that the page shows, ann is a, bob is b, old is deleted; returns the folder of its topic."""
    connector = BrokerlessConnector(cast("SparkSession", LocalSpark()), folder / "store")
    rows = [(b"ann", b"before"), (b"bob", b"b"), (b"old", b"x"), (b"ann", b"a"), (b"old", None)]
    connector.ingest([row(0, offset, *pair) for offset, pair in enumerate(rows)])
    connector.publish()
    connector.cleaner.clean(0)
    shelf, outside = LocalStorage(str(folder / "snapshots")), MemoryBroker(MemoryStorage())
    assert Snapshots(
        connector.spark, connector.catalog, connector.quarantine, outside, connector.settings, shelf, frozenset
    ).take(0)
    (folder / "snapshots/c").rename(folder / "snapshots/customers")
    return (folder / "snapshots/customers/t").rename(folder / "snapshots/customers/customers")


def typed_snapshot(folder: Path, by: str = "none") -> str:
    """Takes a typed snapshot of two orders, paid and new, in partitions `by`; returns the folder of its data."""
    cents = {"type": "bytes", "name": DECIMAL, "parameters": {"scale": "2", "connect.decimal.precision": "10"}}
    fields = [{"field": "status", "type": "string"}, {"field": "total", "optional": True, **cents}]
    content = json.dumps({"type": "struct", "fields": fields})
    settings = {"value.converter": "keyfold.Json", "value.converter.schema.content": content}
    connector = TypedConnector(folder, settings, metadata=["_key"])
    connector.set(settings, partitions=by)
    orders = [{"status": "new", "total": None}, {"status": "paid", "total": base64.b64encode(b"\x04\xe2").decode()}]
    connector.fold([row(0, at, key, json.dumps(orders[at]).encode()) for at, key in enumerate((b"b", b"a"))])
    return str(connector.take().files[0].parents[by != "none"])


def run(*codes: str) -> dict[str, Any]:
    """Runs the blocks one after the other; returns the names that they define."""
    names: dict[str, Any] = {}
    for code in codes:
        exec(compile(code, str(PAGE), "exec"), names)
    return names
