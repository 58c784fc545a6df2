"""The first table of docs/cdc.md, made with the page's own statements, settings and program."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from tests.support.cdc.debezium import STARTED_S, Debezium
from tests.support.cdc.page import CONNECTOR, FIRST_TABLE, blocks, encoding_settings, source_settings
from tests.support.cdc.postgres import DATABASE, Postgres
from tests.support.kafka import wait_until

_OWN: Final = "first"
"""A database of its own: the page's has no other tables."""
_CHANGES: Final = """
UPDATE shop.customers SET balance = balance + 1 WHERE id <= 10;
DELETE FROM shop.customers WHERE id = 7;
"""
_UNSEEN: Final = """
DELETE FROM shop.customers WHERE id IN (20, 21, 22);
UPDATE shop.customers SET name = 'changed while nobody read' WHERE id = 23;
"""
_SOURCE: Final = "shop-source"


class FirstTable:
    """The page's table, from its statements to what its program finds in the snapshot."""

    def __init__(self, server: Postgres, folder: Path) -> None:
        self._server = server
        self._folder = folder

    def create(self, debezium: Debezium) -> None:
        """Makes the table, and Debezium's connector for it."""
        self._server.run(f"CREATE DATABASE {_OWN}")
        (statements,) = blocks(FIRST_TABLE, "sql")
        self._server.run(statements.replace(f"DATABASE {DATABASE}", f"DATABASE {_OWN}"), _OWN)
        here = {"database.port": str(self._server.port), "database.dbname": _OWN}
        debezium.create(_SOURCE, {**source_settings(), **encoding_settings("json")[0], **here})

    def change(self) -> None:
        """Changes some rows."""
        self._server.run(_CHANGES, _OWN)

    def lose_slot(self, debezium: Debezium) -> str:
        """Takes Debezium's slot and offset away, and deletes rows before it reads the whole table again.

        Returns the time between these two, as `date` writes it for the page.
        """
        slot = source_settings()["slot.name"]
        active = f"SELECT active FROM pg_replication_slots WHERE slot_name = '{slot}'"

        def change() -> None:
            wait_until(lambda: self._server.run(active).strip() == "f", "the slot is idle", STARTED_S)
            self._server.run(f"SELECT pg_drop_replication_slot('{slot}')")
            self._server.run(_UNSEEN, _OWN)
            times.append(datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"))

        times: list[str] = []
        debezium.lose_offset(_SOURCE, change)
        return times[0]

    def touch(self) -> None:
        """Sends a row again as it is."""
        self._server.run("UPDATE shop.customers SET id = id WHERE id = 100", _OWN)

    def keyfold(self) -> dict[str, Any]:
        """Returns configs/cdc.json, with its snapshots in the folder."""
        settings = json.loads(CONNECTOR.read_text(encoding="utf-8"))
        return {**settings, "snapshot.location": str(self._folder / "snapshots")}

    def in_database(self) -> list[tuple[Any, ...]]:
        """Returns number and name of each customer."""
        select = "SELECT json_build_array(id, name) FROM shop.customers ORDER BY id"
        return [tuple(json.loads(line)) for line in self._server.run(select, _OWN).splitlines()]

    def in_snapshot(self) -> list[tuple[Any, ...]]:
        """Returns what the page's program finds."""
        (program,) = blocks(FIRST_TABLE, "python")
        names: dict[str, Any] = {}
        with _folder(self._folder):
            exec(program, names)  # the page's own
            rows: list[tuple[Any, ...]] = names["rows"].fetchall()
        return rows


@contextmanager
def _folder(path: Path) -> Iterator[None]:
    """The program's paths count from the folder that it is run in."""
    before = Path.cwd()
    os.chdir(path)
    try:
        yield
    finally:
        os.chdir(before)
