"""The checker of all fault cases, held to account: each kind of breach is fed to it, and it must say so."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from compactor.model.log import Generation, PartitionLog
from compactor.snapshot.manifest import DataFile, Manifest
from tests.faults.checks import Observation, Row, SnapshotFiles, violations
from tests.faults.load import Sent
from tests.support.kafka import Read
from tests.support.promises import Rules, by_bytes, by_offset, by_time

pytestmark = pytest.mark.selected

SOURCE = (
    Read("t", 0, 0, b"a", b"1", (), 5),
    Read("t", 0, 1, b"b", b"2", (("h", b"x"),), 5),
    Read("t", 0, 2, b"a", b"3", (), 5),
    Read("t", 0, 3, b"b", None, (), 6),
    Read("t", 0, 4, b"c", b"4", (), 7),
)
FULL = b'{"n":4,"text":"long"}'
UNFILLED = Read("t", 0, 5, b"c", b'{"n":5,"text":"__debezium_unavailable_value"}', (), 8)
FILE = b"the bytes of a file"
DIGEST = hashlib.sha256(FILE).hexdigest()


LETTERS = Rules(lambda key: key and key.lower(), by_offset)
"""By which keys of the same letters are one."""
SPELLED = (*SOURCE, Read("t", 0, 5, b"C", b"5", (), 8))
AGED = (*SOURCE, Read("t", 0, 5, b"c", b"5", (), 1))


def sent(at: int, offset: int, source: Sequence[Read] = SOURCE) -> Read:
    """The source's record `at` as the output has it at `offset`."""
    one = source[at]
    own = (("keyfold.source.topic", b"t"), ("keyfold.source.partition", b"0"), ("keyfold.source.offset", b"%d" % at))
    return one._replace(topic="o", offset=offset, headers=(*one.headers, *own))


LATE = UNFILLED._replace(topic="o", offset=5, headers=(*sent(4, 4).headers[:2], ("keyfold.source.offset", b"5")))


def manifest(**changes: Any) -> Manifest:
    whole = Manifest(
        connector="c",
        topic="t",
        output_topic="o",
        output_topic_id="id",
        created_at="",
        resume_safe_until=None,
        source_offsets={"0": 3},
        output_offsets={"0": 2},
        records=2,
        tombstones_excluded=0,
        policy={},
        schema=(),
        files=(DataFile(path="data/0.parquet", bytes=len(FILE), sha256=DIGEST, records=2),),
    )
    return replace(whole, **changes)


def taken(**changes: Any) -> SnapshotFiles:
    rows = (Row(0, b"b", 1, b"2"), Row(0, b"a", 2, b"3"))
    return SnapshotFiles(manifest(), {"data/0.parquet": FILE}, {"data/0.parquet": 2}, rows)._replace(**changes)


LOG = PartitionLog(topic="t", partition=0, bucket=0, start=0, end=5, folded_end=5, published=5, clean_end=3)
LONGER = replace(LOG, end=6, folded_end=6, published=6)
AGAIN = replace(LONGER, generation=Generation(number=2, start=0, first_end=6))
OUTPUT = (sent(1, 0), sent(2, 1), sent(3, 3), sent(4, 4))  # at 2 stands the marker of the first transaction
HEALTHY = Observation(
    acknowledged={(0, one.offset): Sent(one.key, one.value, one.headers) for one in SOURCE},
    source=SOURCE,
    ends={0: 5},
    output=OUTPUT,
    positions={0: 5},
    logs=(LOG,),
    snapshot=taken(),
)


def facts(**changes: Any) -> Observation:
    return HEALTHY._replace(**changes)


def of_topic(**changes: Any) -> Observation:
    return HEALTHY._replace(is_of_topic=True, **changes)


def test_where_all_agrees_there_is_no_breach() -> None:
    """The facts that the other tests damage are sound."""
    assert violations(HEALTHY) == []
    assert violations(facts(snapshot=None)) == []
    assert violations(facts(is_of_topic=True)) == []


CASES: dict[str, tuple[Callable[[], Observation], str]] = {
    "lost in the output": (lambda: facts(output=OUTPUT[:-1]), "(3) partition 0, key b'c': last is None"),
    "a lost deletion": (lambda: facts(output=(*OUTPUT[:2], OUTPUT[3])), "(3) partition 0, key b'b'"),
    "doubled": (lambda: facts(output=(*OUTPUT, sent(4, 5))), "(1) source (0, 4) is in the output twice"),
    "reordered": (lambda: facts(output=(sent(2, 0), sent(1, 1), *OUTPUT[2:])), "(2) partition 0: 1 after 2"),
    "changed": (lambda: facts(output=(*OUTPUT[:3], OUTPUT[3]._replace(value=b"5"))), "(4) source (0, 4)"),
    "a header gone": (
        lambda: facts(output=(OUTPUT[0]._replace(headers=OUTPUT[0].headers[1:]), *OUTPUT[1:])),
        "(4) source (0, 1)",
    ),
    "lost at the source": (lambda: facts(source=SOURCE[:-1]), "source: acknowledged record (0, 4) is not there"),
    "changed at the source": (
        lambda: facts(acknowledged={(0, 0): Sent(b"a", b"9", ())}),
        "source: acknowledged record (0, 0)",
    ),
    "group behind": (lambda: facts(positions={0: 4}), "the group holds 4, the catalog 5"),
    "catalog behind": (lambda: facts(logs=(replace(LOG, published=4),)), "the group holds 5, the catalog 4"),
    "no position": (lambda: facts(positions={}), "the group holds None"),
    "partition unknown": (lambda: facts(logs=()), "the catalog None"),
    "log out of order": (lambda: facts(logs=(replace(LOG, clean_end=9),)), "log: t-0 has start"),
    "file of the catalog": (lambda: facts(damaged=("runs/x is damaged or gone",)), "catalog: runs/x"),
    "torn file": (lambda: facts(snapshot=taken(files={"data/0.parquet": FILE[:-1]})), "the manifest says"),
    "file gone": (lambda: facts(snapshot=taken(files={})), "data/0.parquet is not there"),
    "records miscounted": (lambda: facts(snapshot=taken(manifest=manifest(records=3))), "the manifest says 3"),
    "row missing": (lambda: facts(snapshot=taken(rows=taken().rows[:1])), "snapshot: (0, b'a') is None"),
    "row too old": (
        lambda: facts(snapshot=taken(rows=(taken().rows[0], Row(0, b"a", 0, b"1")))),
        "snapshot: (0, b'a') is (0, b'1'), should be (2, b'3')",
    ),
    "row beyond the vector": (
        lambda: facts(snapshot=taken(rows=(*taken().rows, Row(0, b"c", 4, b"4")))),
        "snapshot: (0, b'c') is (4, b'4'), should be None",
    ),
    "resumed too late": (
        lambda: facts(snapshot=taken(manifest=manifest(output_offsets={"0": 4}))),
        "snapshot and output: (0, b'b')",
    ),
    "of a topic, lost": (lambda: of_topic(output=OUTPUT[:-1]), "(3) output: b'c' is None"),
    "of a topic, live twice": (
        lambda: of_topic(output=(OUTPUT[3]._replace(partition=1), *OUTPUT)),
        "(3) keys are live in several partitions",
    ),
    "of a topic, doubled": (lambda: of_topic(output=(*OUTPUT, sent(4, 5))), "(1) source (0, 4)"),
    "of a topic, reordered": (lambda: of_topic(output=(sent(2, 0), sent(1, 1), *OUTPUT[2:])), "(2) output 0"),
    "of a topic, changed": (
        lambda: of_topic(output=(*OUTPUT[:3], OUTPUT[3]._replace(value=b"5"))),
        "(4) source (0, 4)",
    ),
    "of a topic, a loser": (lambda: of_topic(output=(*OUTPUT, sent(0, 5))), "should be b'3'"),
    "of a topic, row missing": (lambda: of_topic(snapshot=taken(rows=taken().rows[:1])), "snapshot: b'a' is None"),
    "of a topic, not filled": (
        lambda: of_topic(
            fills=True, source=(*SOURCE[:4], SOURCE[4]._replace(value=FULL), UNFILLED), output=(*OUTPUT, LATE)
        ),
        "(4) source (0, 5)",
    ),
    "another spelling is live": (
        lambda: facts(rules=LETTERS, source=SPELLED, ends={0: 6}, output=(*OUTPUT, sent(5, 5, SPELLED))),
        "snapshot and output: (0, b'c') is b'4', should be None",
    ),
    "a spelling of before": (
        lambda: facts(rules=LETTERS, source=SPELLED, logs=(AGAIN,), output=(*OUTPUT, sent(5, 5, SPELLED))),
        "(5) live keys differ",
    ),
    "a record that came late": (
        lambda: facts(rules=Rules(by_bytes, by_time), source=AGED, logs=(LONGER,), output=(*OUTPUT, sent(5, 5, AGED))),
        "(3) partition 0, key b'c': last is 5, should be 4",
    ),
    "of a topic, resumed too late": (
        lambda: of_topic(snapshot=taken(manifest=manifest(output_offsets={"0": 4}))),
        "snapshot and output: b'b'",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_each_breach_is_seen(case: str) -> None:
    """What is wrong is said, by the promise or the place that it breaks."""
    make, said = CASES[case]
    assert said in "\n".join(violations(make()))
