"""The worked example of docs/semantics.md of one winner over a topic, record by record on the real engine."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from compactor.model.record import TopicPartition
from tests.support.oracle.oracle import Oracle
from tests.support.oracle.output import apply_records
from tests.support.oracle.steps import PARTITIONS, Ingest, OfTopics, Restart, Settings, Snapshot, SourceRecord

PAGE: Final = Path(__file__).parents[3] / "docs" / "semantics.md"
ROW: Final = re.compile(r"^(\d) +(\d) +(order-\d) +(\S+) +(\d+) +(published|late)$", re.MULTILINE)


def test_the_documentations_example_of_one_winner_over_a_topic(tmp_path: Path) -> None:
    """Each record is published or late as the page says, and reader and snapshot end with what the page says."""
    text = PAGE.read_text(encoding="utf-8").partition("### One winner over a topic")[2].partition("## ")[0]
    rows = ROW.findall(text)
    assert len(rows) == 8
    oracle = Oracle(None, tmp_path, of_topics=True)
    oracle.run([OfTopics(), Restart(Settings(state_index="always"))])
    output = oracle.simulation.broker.output
    for partition, offset, key, value, time, outcome in rows:
        tp = TopicPartition("t", int(partition))
        value_bytes = None if value == "-" else value.encode()
        record = SourceRecord(PARTITIONS.index(tp), key.encode(), value_bytes, time=int(time), fixed=True)
        oracle.run([Ingest((record,))])
        sent = {(one.tp, one.source_offset) for records in output.records.values() for one in records}
        assert ((tp, int(offset)) in sent) == (outcome == "published"), (partition, offset)
    everything = [one for records in output.records.values() for one in records]
    assert apply_records(everything) == {b"order-8": b"shipped"}
    assert {one.output_tp.partition for one in everything} <= {0, 1}
    oracle.run([Snapshot()])
    (taken,) = oracle.simulation.components.catalog.state.snapshots
    assert taken.records == 1
