"""By which record of the source a kept value is deleted: each is tried out in the connector's own chain."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, Final

import pytest

from connectors.chain.spec import ChainSpec, chain_spec
from connectors.errors import UsageError
from connectors.kafka.client_settings import ClientSettings
from connectors.operations.erase.deletions import deletions
from connectors.operations.erase.source_records import SourceRecords
from connectors.operations.erase.tombstones import Deletion, ToDelete
from connectors.operations.topic_samples import Sample
from tests.support.change_events import JSON, PLAIN_KEY, UNWRAP, change, key_of, with_schema

SECRET: Final = "the street where she lives"
TAKES_ID: Final = {
    "transforms": "k",
    "transforms.k.type": "org.apache.kafka.connect.transforms.ExtractField$Key",
    "transforms.k.field": "id",
}


class KeptSource(SourceRecords):
    """A source that has one record at the place of each value, which is also its newest; None: it is empty."""

    def __init__(self, record: Sample | None = None) -> None:
        super().__init__(ClientSettings({}))
        self.record = record

    def newest(self, topics: Iterable[str]) -> dict[str, list[Sample]]:
        return {topic: [self.record] if self.record else [] for topic in topics}

    def of(self, values: Iterable[ToDelete]) -> Iterator[tuple[ToDelete, Sample]]:
        return ((value, self.record) for value in values if self.record is not None)


KEY: Final = key_of("7")
CHANGE: Final = Sample(KEY, change("7", SECRET, 12), [("trace", SECRET.encode())])


def _deletion(chain: ChainSpec, key: bytes, source: Sample | None, order: str = "offset") -> Deletion:
    value = ToDelete(
        number=0, key=key, topic="t", partition=1, offset=4, timestamp_ms=9, headers=(("v", b"1"), ("v", b"2"))
    )
    (deletion,) = deletions("c", chain, [value], order, KeptSource(source))
    return deletion


@pytest.mark.parametrize(("order", "headers"), [("offset", ()), ("header:v", (("v", b"2"),)), ("header:absent", ())])
def test_a_tombstone_has_the_header_that_the_order_goes_by(order: str, headers: tuple[Any, ...]) -> None:
    """Of equal ones the higher offset wins; other headers say nothing of a tombstone. No transform, no question."""
    deletion = _deletion(chain_spec({}), b"k", None, order)
    assert (deletion.key, deletion.payload, deletion.headers) == (b"k", None, headers)


@pytest.mark.parametrize(
    ("settings", "kept", "sent"),
    [
        ({"transforms": "d", "transforms.d.type": "DropHeaders", "transforms.d.headers": "h"}, b"k", b"k"),
        (JSON | PLAIN_KEY | {"key.converter.schemas.enable": "false"}, b'{"id":"7"}', b'{"id":"7"}'),
        (JSON | PLAIN_KEY, b'{"id":"7"}', KEY),
        (JSON | TAKES_ID, with_schema({"type": "string", "optional": False}, "7"), KEY),
    ],
    ids=["passes", "same form", "another form", "a field of the key"],
)
def test_a_tombstone_has_the_key_of_the_source(settings: dict[str, str], kept: bytes, sent: bytes) -> None:
    """It comes out of the chain under the kept key; in another form, or made of a field, it is read in the source."""
    deletion = _deletion(chain_spec(settings), kept, CHANGE)
    assert (deletion.key, deletion.payload, deletion.is_followed) == (sent, None, False)


@pytest.mark.parametrize("more", [{}, PLAIN_KEY], ids=["as read", "output.key.converter"])
def test_a_row_of_change_events_is_deleted_by_such_an_event(more: dict[str, str]) -> None:
    """Its schema and source are those of another event, no value of a row is in it, and a tombstone follows it."""
    deletion = _deletion(chain_spec(JSON | UNWRAP | more), b'{"id":"7"}' if more else KEY, CHANGE)
    assert (deletion.key, deletion.is_followed, SECRET.encode() in (deletion.payload or b"")) == (KEY, True, False)
    event = json.loads(deletion.payload or b"")["payload"]
    assert event == {
        "before": {"id": "", "street": ""},
        "after": None,
        "source": {"lsn": 12, "query": None},
        "op": "d",
        "ts_ms": 5,
    }


VALUE_KEY: Final = {
    "transforms": "k",
    "transforms.k.type": "org.apache.kafka.connect.transforms.ValueToKey",
    "transforms.k.fields": "id",
}


@pytest.mark.parametrize(
    ("settings", "source", "said"),
    [
        (JSON | VALUE_KEY, CHANGE, "Its chain refuses a tombstone"),
        (UNWRAP | JSON | {"transforms.e.delete.tombstone.handling.mode": "drop"}, CHANGE, "Its chain drops a tombston"),
        (
            UNWRAP | JSON | {"transforms.e.delete.tombstone.handling.mode": "rewrite"},
            CHANGE,
            "Its chain drops a tombston",
        ),
        (JSON | UNWRAP, None, "it may be gone"),
        (JSON | TAKES_ID, None, "it may be gone"),
    ],
    ids=["a key of the value", "deletes are dropped", "deletes are rewritten", "no event is there", "no key is there"],
)
def test_what_nothing_deletes_is_refused(settings: dict[str, str], source: Sample | None, said: str) -> None:
    """With the place of the value, why, and what to do instead."""
    with pytest.raises(UsageError, match="t-1, offset 4") as raised:
        _deletion(chain_spec(settings), KEY, source)
    assert said in raised.value.message
    passes = "delete.tombstone.handling.mode=tombstone" if "drops" in said else "Delete the keys at the source"
    assert passes in raised.value.action


def test_a_key_of_a_record_that_is_gone_is_written_by_the_source_s_converter() -> None:
    """It comes out under the kept key as well, though other bytes of it may have been there before."""
    deletion = _deletion(chain_spec(JSON | PLAIN_KEY), b'{"id":"7"}', None)
    assert (json.loads(deletion.key), deletion.payload) == ({"schema": None, "payload": {"id": "7"}}, None)
