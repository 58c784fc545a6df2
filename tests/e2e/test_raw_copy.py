"""cleanup.policy=delete: keyfold as a raw copy with retention, which publishes nothing."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Final

import pytest

from compactor.runs.reader import read
from compactor.runs.scan import whole
from connectors.config.files import load_worker
from connectors.config.stores import connector_storage
from connectors.errors import EXIT_OK
from tests.support.cdc.page import ROOT, appended_rows
from tests.support.deployment import Deployment
from tests.support.kafka import consume_all, create_topic, produce

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_raw_copy_keeps_every_record_until_it_is_too_old(spark: SparkSession, deployment: Deployment) -> None:
    """Every record is kept, also without a key, and none twice after a restart; old ones go by retention.ms."""
    for key in ("snapshot.location", "errors.deadletterqueue.topic.replication.factor"):
        del deployment.settings[key]
    deployment.settings |= {"cleanup.policy": "delete", "output.topic": "none", "retention.ms": 3_600_000}
    produce(
        deployment.bootstrap,
        deployment.topic,
        [(0, b"a", b"1"), (0, None, b"no key"), (0, b"a", b"2"), (1, b"a", None)],
    )
    deployment.run_once(spark)
    produce(deployment.bootstrap, deployment.topic, [(1, b"b", b"3")])
    state = deployment.run_once(spark)
    storage = connector_storage(load_worker(deployment.folder / "worker.json"), deployment.name)
    kept = [
        (one["partition"], one["offset"], one["key"], one["value"])
        for log in state.logs
        for batch in read(storage, whole(log))
        for one in batch.to_pylist()
    ]
    source = [
        (one.partition, one.offset, one.key, one.value) for one in consume_all(deployment.bootstrap, deployment.topic)
    ]
    assert sorted(kept, key=lambda one: one[:2]) == sorted(source, key=lambda one: one[:2])
    assert all(topic.output is None for topic in state.topics.values())
    expired = deployment.run_once(spark, retention_ms=0)
    assert [(log.start, log.end) for log in expired.logs] == [(log.end, log.end) for log in state.logs]


_ROW: Final = [{"field": "visitor", "type": "string"}, {"field": "page", "type": "string", "optional": True}]
_SOURCE: Final = {"field": "source", "type": "struct", "fields": [{"field": "lsn", "type": "int64", "optional": True}]}
_ENVELOPE: Final = {
    "type": "struct",
    "name": "db.shop.visits.Envelope",
    "fields": [
        *({"field": name, "type": "struct", "optional": True, "fields": _ROW} for name in ("before", "after")),
        _SOURCE,
        {"field": "op", "type": "string"},
    ],
}


def _visit(lsn: int, visitor: str, page: str, op: str = "c") -> tuple[int, None, bytes]:
    """Returns the event of a row without a key, as Debezium writes it in JSON with schemas."""
    row = {"visitor": visitor, "page": page}
    payload = {"before": None if op != "d" else row, "after": None if op == "d" else row, "op": op}
    return 0, None, json.dumps({"schema": _ENVELOPE, "payload": {**payload, "source": {"lsn": lsn}}}).encode()


def test_a_table_without_a_key_is_the_rows_that_were_inserted(spark: SparkSession, deployment: Deployment) -> None:
    """configs/visits.json and the program of docs/cdc.md: equal rows, and none twice that Connect has sent twice."""
    settings = json.loads((ROOT / "configs" / "visits.json").read_text(encoding="utf-8"))
    location = deployment.settings["snapshot.location"]
    own = {"name": deployment.name, "topics": deployment.topic, "snapshot.location": location}
    deployment.settings = {**settings, **own}
    place = f"{location}/{deployment.name}/{deployment.topic}"
    first = [_visit(1, "ann", "/", "r"), _visit(2, "bob", "/"), _visit(3, "bob", "/"), _visit(4, "ann", "/new")]
    produce(deployment.bootstrap, deployment.topic, [*first, *first[2:]])
    deployment.run_once(spark)
    inserted = Counter([("ann", "/"), ("bob", "/"), ("bob", "/"), ("ann", "/new")])
    assert Counter(row[1:] for row in appended_rows(place)) == inserted
    produce(deployment.bootstrap, deployment.topic, [_visit(5, "ann", "/x", "u"), _visit(6, "bob", "/", "d")])
    produce(deployment.bootstrap, deployment.topic, [_visit(7, "eve", "/")])
    deployment.run_once(spark)
    assert Counter(row[1:] for row in appended_rows(place)) == inserted + Counter([("eve", "/")])


@pytest.mark.long
def test_a_truncate_empties_the_table_of_every_row(deployment: Deployment) -> None:
    """The next snapshot has the rows after it: test_truncate.py::test_a_truncate_takes_the_rows_from_before_it."""
    table = deployment.for_topic(f"{deployment.topic}-visits")
    create_topic(table.bootstrap, table.topic, 1, cleanup_policy="delete")
    settings = json.loads((ROOT / "configs" / "visits.json").read_text(encoding="utf-8"))
    location = table.settings["snapshot.location"]
    own = {"name": table.name, "topics": table.topic, "snapshot.location": location, "debezium.truncate": "apply"}
    table.settings = {**settings, **own}
    emptied = {"schema": _ENVELOPE, "payload": {"before": None, "after": None, "op": "t", "source": {"lsn": 3}}}
    before = [_visit(1, "ann", "/"), _visit(2, "bob", "/")]
    produce(table.bootstrap, table.topic, [*before, (0, None, json.dumps(emptied).encode()), _visit(4, "eve", "/")])
    with table.process("--once") as worker:
        assert worker.wait() == EXIT_OK, worker.tail()
    assert [row[1:] for row in appended_rows(f"{location}/{table.name}/{table.topic}")] == [("eve", "/")]
