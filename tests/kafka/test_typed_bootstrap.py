"""A table of a typed snapshot stays current by its topic: keys and fields are those of the snapshot."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from connectors.bootstrap import Change, Clients, open_table
from connectors.bootstrap.changes import Changes
from connectors.dev.embedded_kafka import EmbeddedKafka
from connectors.errors import UnreachableError
from connectors.kafka.admin import Admin
from tests.support.cli import ROOT
from tests.support.engine import row
from tests.support.kafka import create_topic, produce
from tests.support.snapshot_recipes import recipes
from tests.support.typed_snapshots import TypedConnector

PAGE = ROOT / "docs" / "bootstrap.md"
PLAIN = {
    f"{side}.converter{name}": text
    for side in ("key", "value")
    for name, text in (("", "keyfold.Json"), (".schemas.enable", "false"))
}


def _topic_folder(folder: Path, bootstrap: str, output: str) -> str:
    """Takes a typed snapshot of two records, after which the output has `output`; returns its topic's folder."""
    connector = TypedConnector(folder, PLAIN, key=True)
    connector.fold([row(0, 0, b'{"id":1}', b'{"status":"new"}'), row(0, 1, b'{"id":2}', b'{"status":"new"}')])
    said = connector.take().files[0].parents[1] / "_manifest.json"
    admin = Admin({"bootstrap.servers": bootstrap})
    try:
        topic_id = admin.describe([output])[output].id
    finally:
        admin.close()
    changed = {"output_topic": output, "output_topic_id": topic_id, "output_offsets": {"0": 0}}
    said.write_text(json.dumps({**json.loads(said.read_text()), **changed}))
    return f"{connector.shelf.location}/c/t"


def test_a_typed_table_is_current_without_any_setting(tmp_path: Path, broker: EmbeddedKafka, topic_name: str) -> None:
    """What has changed is found by the same keys, with the same fields, also by a reader that is started again."""
    create_topic(broker.bootstrap, topic_name, 1, cleanup_policy="compact")
    kafka = {"bootstrap.servers": broker.bootstrap}
    location = _topic_folder(tmp_path, broker.bootstrap, topic_name)
    paid, odd = {"status": "paid", "_rest": None}, {"status": None, "_rest": b"{"}
    sent = [(0, b'{"id": 1}', b'{"status":"paid"}'), (0, b'{"id":2}', None), (0, b"[", b"{")]
    produce(broker.bootstrap, topic_name, sent)
    with open_table(location, kafka).table() as table:
        assert [(record.key, record.fields) for record in table] == [({"id": 1}, paid), (b"[", odd)]
        assert ({"id": 2} in table, len(table)) == (False, 2)
    with open_table(location, kafka).changes() as changes:
        first = list(islice(changes, 1))
        position = changes.position.encode()
    with open_table(location, kafka).changes(position) as changes:
        rest = list(islice(changes, 2))
    expected = [({"id": 1}, paid), ({"id": 2}, None), (b"[", odd)]
    assert [(change.key, change.fields) for change in (*first, *rest)] == expected
    (code,) = recipes(PAGE)["Typed snapshots"]
    names: dict[str, object] = {}
    here = code.replace("snapshots/orders/orders", location).replace("127.0.0.1:9092", broker.bootstrap)
    exec(compile(here, str(PAGE), "exec"), names)
    assert names["status"] == "paid"


class _Away:
    """A decoder that a registry does not answer at first."""

    def __init__(self, failures: int) -> None:
        self.failures = failures

    def decoded(self, changes: Sequence[Change]) -> list[Change]:
        if self.failures and changes:
            self.failures -= 1
            raise UnreachableError("Away.")
        return list(changes)

    def close(self) -> None: ...


def test_no_change_is_lost_while_a_registry_is_away(tmp_path: Path, broker: EmbeddedKafka, topic_name: str) -> None:
    """Nothing comes, and nothing counts as read; once it answers, each change comes once."""
    create_topic(broker.bootstrap, topic_name, 1, cleanup_policy="compact")
    kafka = {"bootstrap.servers": broker.bootstrap}
    begun = open_table(_topic_folder(tmp_path, broker.bootstrap, topic_name), kafka).position
    produce(broker.bootstrap, topic_name, [(0, b"%d" % number, b"v") for number in range(5)])
    away = _Away(2)
    with Changes(Clients(kafka, kafka), begun, decoder=away) as changes:
        while away.failures:
            assert changes.poll(0.2) == []
            assert (changes.current, changes.position.numbers) == (None, {0: 0})
        read = list(islice(changes, 5))
        assert [change.key for change in read] == [b"%d" % number for number in range(5)]
        assert (changes.position.numbers, changes.poll(0.2)) == ({0: 5}, [])
