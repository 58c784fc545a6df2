"""Change events of Debezium's MySQL connector, as its own page shows them, become rows."""

from __future__ import annotations

from typing import Any, Final

import pytest

from tests.support.debezium_events import chain_of, events_of, sent

UNWRAP: Final = "io.debezium.transforms.ExtractNewRecordState"
EVENTS: Final = events_of("mysql")
KEY: Final = {**EVENTS["key"], "payload": {"id": 1004}}
ROW: Final = {"id": 1004, "first_name": "Anne", "last_name": "Kretchmar", "email": "annek@noanswer.org"}
CHANGED: Final = {**ROW, "first_name": "Anne Marie"}


@pytest.mark.parametrize(("name", "row"), [("create", ROW), ("update", CHANGED), ("delete", None)])
def test_an_event_becomes_the_row_after_it(name: str, row: dict[str, Any] | None) -> None:
    """Its key is that of the table, and a delete is a tombstone."""
    assert sent(chain_of(UNWRAP), (KEY, EVENTS[name])) == [({"id": 1004}, row, "")]


def test_the_tombstone_after_a_delete_is_not_sent_twice() -> None:
    """The delete is one already."""
    assert sent(chain_of(UNWRAP), (KEY, EVENTS["delete"]), (KEY, None)) == [({"id": 1004}, None, "")]


def test_a_truncate_makes_no_row() -> None:
    """It has no key; `debezium.truncate` says what becomes of the rows that were there."""
    assert sent(chain_of(UNWRAP), (None, EVENTS["truncate"])) == []


def test_the_place_in_the_binlog_can_be_added() -> None:
    """Fields of `source` by their names, those of the event itself too."""
    chain = chain_of(UNWRAP, add_fields="op,file,pos,source.ts_ms,gtid")
    added = {"__op": "u", "__file": "mysql-bin.000003", "__pos": 484, "__source_ts_ms": 1465581029100, "__gtid": None}
    assert sent(chain, (KEY, EVENTS["update"])) == [({"id": 1004}, {**CHANGED, **added}, "")]


def test_a_delete_can_stay_a_row() -> None:
    """With `rewrite` the row is there as it was, and says that it was deleted."""
    chain = chain_of(UNWRAP, delete_tombstone_handling_mode="rewrite")
    assert sent(chain, (KEY, EVENTS["delete"])) == [({"id": 1004}, {**CHANGED, "__deleted": "true"}, "")]
