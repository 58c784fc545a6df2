"""The worked example of docs/semantics.md, record by record on the real engine."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final, NamedTuple

from compactor.model.record import TopicPartition
from tests.support.oracle.oracle import Oracle
from tests.support.oracle.output import apply_records
from tests.support.oracle.steps import Ingest, OrderedBy, Restart, Settings, SourceRecord

PAGE: Final = Path(__file__).parents[3] / "docs" / "semantics.md"
ORDER: Final = "header:version"
ROW: Final = re.compile(r"^(\d+) +(order-\d)  (\S+(?: \S+)*) +(\d+|-) +(published|late)$", re.MULTILINE)


class Line(NamedTuple):
    """A line of the example's table."""

    offset: int
    record: SourceRecord
    outcome: str


def _lines() -> list[Line]:
    text = PAGE.read_text(encoding="utf-8").partition("### Another order")[2].partition("### ")[0]
    lines = []
    for offset, key, value, version, outcome in ROW.findall(text):
        headers = () if version == "-" else (("version", int(version).to_bytes(8, "big")),)
        record = SourceRecord(0, key.encode(), None if value == "-" else value.encode(), headers=headers)
        lines.append(Line(int(offset), record, outcome))
    return lines


def test_the_documentations_example_of_another_order(tmp_path: Path) -> None:
    """Each record is published or late as the page says, and a reader ends with what the page says."""
    oracle = Oracle(None, tmp_path, order=ORDER)
    oracle.run([OrderedBy(ORDER), Restart(Settings(state_index="always"))])
    lines = _lines()
    assert [line.offset for line in lines] == list(range(9))
    sent = oracle.simulation.broker.output.records.setdefault(TopicPartition("t", 0), [])
    for line in lines:
        oracle.run([Ingest((line.record,))])
        is_sent = bool(sent) and sent[-1].source_offset == line.offset
        assert is_sent == (line.outcome == "published"), line
    assert apply_records(sent) == {b"order-7": b"shipped again"}
