"""The worked example of docs/semantics.md of records that change nothing, record by record on the real engine."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from compactor.model.record import TopicPartition
from tests.support.oracle.oracle import Oracle
from tests.support.oracle.steps import Ingest, Restart, Settings, SourceRecord

PAGE: Final = Path(__file__).parents[3] / "docs" / "semantics.md"
ROW: Final = re.compile(r"^(\d) +(order-\d) +(\S+) +(published|unchanged)$", re.MULTILINE)


def test_the_documentations_example_of_records_that_change_nothing(tmp_path: Path) -> None:
    """Each record is published or left out as the page says."""
    text = PAGE.read_text(encoding="utf-8").partition("### Records that change nothing")[2].partition("### ")[0]
    rows = ROW.findall(text)
    assert [int(offset) for offset, *_ in rows] == list(range(9))
    oracle = Oracle(None, tmp_path)
    oracle.run([Restart(Settings(state_index="always", unchanged="skip"))])
    sent = oracle.simulation.broker.output.records.setdefault(TopicPartition("t", 0), [])
    for offset, key, value, outcome in rows:
        oracle.run([Ingest((SourceRecord(0, key.encode(), None if value == "-" else value.encode()),))])
        assert (sent[-1].source_offset == int(offset)) == (outcome == "published"), offset
