"""The worked example of docs/converters.md of keys with an identity, record by record on the real engine."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from compactor.model.record import TopicPartition
from connectors.chain.key_identity import JsonKeyIdentity, compared
from tests.support.oracle.oracle import Oracle
from tests.support.oracle.steps import Ingest, Restart, Settings, SourceRecord

PAGE: Final = Path(__file__).parents[4] / "docs" / "converters.md"
ROW: Final = re.compile(r"^(\d)  +(\{.*?\})  +(\S)  +(\{.* = .*)$", re.MULTILINE)


def test_the_documentations_example_of_a_key_in_several_spellings(tmp_path: Path) -> None:
    """Each record brings the output what the page says, tombstones of other spellings first."""
    rows = ROW.findall(PAGE.read_text(encoding="utf-8").partition("## Key identity")[2])
    assert [int(offset) for offset, *_ in rows] == list(range(5))
    oracle, identity = Oracle(None, tmp_path, any_case=True), JsonKeyIdentity()
    oracle.simulation.compares_by(lambda key: compared(identity, (), key))
    oracle.run([Restart(Settings(state_index="always"))])
    sent = oracle.simulation.broker.output.records.setdefault(TopicPartition("t", 0), [])
    for _, key, value, expected in rows:
        before = len(sent)
        oracle.run([Ingest((SourceRecord(0, key.encode(), None if value == "-" else value.encode()),))])
        told = [
            f"{(one.key or b'').decode()} = {'-' if one.value is None else one.value.decode()}" for one in sent[before:]
        ]
        assert ", ".join(told) == expected
