"""The worked examples of docs/semantics.md, record by record on the real engine."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from compactor.model.record import TopicPartition
from tests.support.oracle.oracle import Oracle
from tests.support.oracle.output import apply_records
from tests.support.oracle.steps import Ingest, OrderedBy, Restart, Settings, SourceRecord

PAGE: Final = Path(__file__).parents[3] / "docs" / "semantics.md"
ROW: Final = re.compile(r"^(\d+) +(order-\d|\d)  +(\S+(?: \S+)*) +(\d+|-) +(published|late)$", re.MULTILINE)


class Line(NamedTuple):
    """A line of the example's table."""

    offset: int
    record: SourceRecord
    outcome: str


def _lines(key_of: str) -> list[Line]:
    """Returns the lines of the example whose keys match `key_of`."""
    text = PAGE.read_text(encoding="utf-8").partition("### Another order")[2].partition("### ")[0]
    lines = []
    for offset, key, value, version, outcome in ROW.findall(text):
        number = b"" if version == "-" else int(version).to_bytes(8, "big")
        headers = (("version", number), ("rank", number)) if number else ()
        record = SourceRecord(0, key.encode(), None if value == "-" else value.encode(), headers=headers)
        if re.fullmatch(key_of, key):
            lines.append(Line(int(offset), record, outcome))
    return lines


@pytest.mark.parametrize(
    ("order", "key", "count", "ends_with"),
    [
        ("header:version", r"order-\d", 9, {b"order-7": b"shipped again"}),
        ("field:rank", r"\d", 10, {}),
    ],
)
def test_the_documentations_examples_of_another_order(
    tmp_path: Path, order: str, key: str, count: int, ends_with: dict[bytes, bytes]
) -> None:
    """Each record is published or late as the page says, and a reader ends with what the page says."""
    oracle = Oracle(None, tmp_path, order=order)
    oracle.run([OrderedBy(order), Restart(Settings(state_index="always"))])
    lines = _lines(key)
    assert [line.offset for line in lines] == list(range(count))
    sent = oracle.simulation.broker.output.records.setdefault(TopicPartition("t", 0), [])
    for line in lines:
        oracle.run([Ingest((line.record,))])
        is_sent = bool(sent) and sent[-1].source_offset == line.offset
        assert is_sent == (line.outcome == "published"), line
    assert apply_records(sent) == ends_with
