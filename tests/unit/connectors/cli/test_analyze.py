from __future__ import annotations

import base64
import json
import re
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

from compactor.analyze.effect import Effect, Outcome
from compactor.catalog.catalog import Catalog
from compactor.catalog.owner_lock import OwnerLock, this_process
from compactor.model.actions import AddPartition, AddTopic, AnyAction, Append, Clean, CloseTopic, Publish, Quarantine
from compactor.model.log import BASE, Quarantined
from connectors.cli.commands import analyze
from connectors.cli.options import CommandParts
from connectors.errors import ConfigError
from connectors.operations import analyze as operation
from connectors.operations.analyze import AnalyzeReport, PartitionReport, SplitKey, SplitKeyCount, TopicReport, key_text
from tests.support.cli import NAME, ROOT, connector_file, invoke, keep, row, storage_of, worker_file
from tests.support.clocks import ManualClock
from tests.support.run_files import Row, run_rows, write_run

NOW = 1_795_228_200_000  # 2026-11-21T02:30:00Z
DAY = 86_400_000
OLD, YOUNG = NOW - 7_200_000, NOW - 600_000


def _record(key: bytes | None, value: bytes | None, at_ms: int = OLD, **more: Any) -> Row:
    return {"key": key, "value": value, "timestamp": at_ms, **more}


BASE_ROWS = [
    _record(b"a", b"old a"),
    _record(b"gone", None, delete_horizon=NOW - 1),
    _record(b"going", None, delete_horizon=NOW + 1_000),
]
HEAD_ROWS = [
    *(_record(b"a", b"new a"), _record(b"b", b"1"), _record(b"b", b"22"), _record(None, b"no key")),
    *(_record(b"fresh", None), _record(b"a", b"young", YOUNG), _record(None, b"no key", YOUNG)),
]


def keep_orders(folder: Path, *actions: AnyAction, others: int = 0) -> Catalog:
    """`orders`: partition 0 has a base run and a head of which two records are young, partition 1 key `a` as well."""
    storage = storage_of(folder)
    catalog = Catalog.open(storage, NAME)
    catalog.take_over("tester:1", 1_000)
    base = write_run(storage, run_rows("orders", 0, 0, BASE_ROWS), arrived_ms=OLD, level=BASE)
    head = write_run(storage, run_rows("orders", 0, 3, HEAD_ROWS), arrived_ms=YOUNG)
    other = write_run(storage, run_rows("orders", 1, 0, [_record(b"a", b"1"), _record(b"\xff", b"2")]), arrived_ms=OLD)
    made = [
        AddTopic(topic="orders", topic_id="i", output="orders.compacted", output_id="o"),
        *(AddPartition(topic="orders", partition=one, bucket=0, start=0) for one in (0, 1)),
        Append(topic="orders", partition=0, start=0, end=3),
        Publish(topic="orders", partition=0, end=3),
        Clean(topic="orders", partition=0, end=3, base=base, at_ms=OLD),
        Append(topic="orders", partition=0, start=3, end=10, run=head),
        Append(topic="orders", partition=1, start=0, end=2, run=other),
        Publish(topic="orders", partition=1, end=2),
        *actions,
    ]
    catalog.commit(lambda _: made, 2_000)
    return catalog


def _analyzed(folder: Path, *arguments: str, **settings: str) -> Any:
    files = connector_file(folder, **settings), "--worker", worker_file(folder)
    result = invoke("analyze", *files, *arguments, parts=CommandParts(clock=ManualClock(NOW)))
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout) if "--json" in arguments else result.stdout


LAG = {"min.compaction.lag.ms": "3600000"}

TEXT = """\
What a full fold of connector orders-keeper would do at 2026-11-21T02:30:00Z.
No worker is running. Counted is what is ingested; nothing was changed.
Before it folds, a worker publishes: 1 partition may be published further, from PUBLISHED to FOLD TO.

orders, 2 partitions             RECORDS  BYTES
kept now                              12     53
  superseded by a later record        -2     -8
  tombstones past their horizon       -1     -4
  rejected, or without a key          -1     -6
kept after a full fold                 8     35
  last records of their keys           4     13
  tombstones                           2     10
  held by min.compaction.lag.ms        2     12
    rejected among them                1      6
A full fold keeps 66.7 % of the records and 66.0 % of the bytes.
Tombstones that are kept: 2; a full fold from 2026-11-21T02:30:01Z on drops the first, from 2026-11-22T02:30:00Z on \
the last. 1 of them get their delete horizon by this fold.
1 key in more than one partition: each partition keeps its own last record, and no fold joins them.
  KEY  PARTITIONS
  a    0, 1
Live records with a later one of their key in another partition: 1, 6 bytes.

Records, now
PARTITION  PUBLISHED  FOLD TO  BEFORE  SUPERSEDED  EXPIRED  REJECTED  AFTER  LIVE  TOMBSTONES  HELD
orders-0           3        8      10           2        1         1      6     2           2     2
orders-1           2        2       2           0        0         0      2     2           0     0

Bytes, now
PARTITION  BEFORE  SUPERSEDED  EXPIRED  REJECTED  AFTER  LIVE  TOMBSTONES  HELD
orders-0       49           8        4         6     31     9          10    12
orders-1        4           0        0         0      4     4           0     0

Cleaner, now
PARTITION  DIRTY  STAMPED  FIRST HORIZON         LAST HORIZON          WOULD THE CLEANER FOLD IT BY ITSELF?
orders-0    0.59        1  2026-11-21T02:30:01Z  2026-11-22T02:30:00Z  Due: its dirty ratio is 0.595, above \
min.cleanable.dirty.ratio 0.5.
orders-1    1.00        0  -                     -                     Due: its dirty ratio is 1.000, above \
min.cleanable.dirty.ratio 0.5.
"""


def test_people_read_what_goes_and_what_stays(tmp_path: Path) -> None:
    """The balance of each topic, its split keys, every partition with the cleaner's answer; aligned, to the byte."""
    keep_orders(tmp_path)
    assert _analyzed(tmp_path, **LAG) == TEXT


def test_other_settings_stand_beside_the_present_ones(tmp_path: Path) -> None:
    """--with: both figures and the difference of each line, then the partitions once more."""
    keep_orders(tmp_path)
    shown = _analyzed(tmp_path, "--with", "min.compaction.lag.ms=0", "--with", "delete.retention.ms=0", **LAG)
    lines = shown.splitlines()
    assert "WITH is: min.compaction.lag.ms=0, delete.retention.ms=0" in lines
    balance = lines[lines.index("") + 1 :]
    assert balance[:11] == [
        "orders, 2 partitions             RECORDS  BYTES  RECORDS WITH  BYTES WITH  RECORDS +/-  BYTES +/-",
        "kept now                              12     53            12          53            0          0",
        "  superseded by a later record        -2     -8            -3         -14           -1         -6",
        "  tombstones past their horizon       -1     -4            -1          -4            0          0",
        "  rejected, or without a key          -1     -6            -2         -12           -1         -6",
        "kept after a full fold                 8     35             6          23           -2        -12",
        "  last records of their keys           4     13             4          13            0          0",
        "  tombstones                           2     10             2          10            0          0",
        "  held by min.compaction.lag.ms        2     12             0           0           -2        -12",
        "    rejected among them                1      6             0           0           -1         -6",
        "A full fold keeps 66.7 % of the records and 66.0 % of the bytes.",
    ]
    assert lines[lines.index("Records, WITH") + 2].split()[-1] == "-2"
    assert lines[lines.index("Bytes, WITH") + 1].split()[-2:] == ["AFTER", "+/-"]


def test_one_winner_over_a_topic_is_counted_before_it_is_asked_for(tmp_path: Path) -> None:
    """--with compaction.scope=topic: the record that another partition has a later one of its key for would go."""
    keep_orders(tmp_path)
    shown = _analyzed(tmp_path, "--with", "compaction.scope=topic", **LAG).splitlines()
    assert "WITH is: compaction.scope=topic" in shown
    for line in (
        "  superseded by a later record        -2     -8            -3         -14           -1         -6",
        "  last records of their keys           4     13             3           7           -1         -6",
        "Live records with a later one of their key in another partition: 1, 6 bytes.",
    ):
        assert line in shown


def test_settings_that_change_no_figure_say_so(tmp_path: Path) -> None:
    """segment.bytes cuts files anew and moves no record."""
    keep_orders(tmp_path)
    assert "WITH: not one of these figures differs." in _analyzed(tmp_path, "--with", "segment.bytes=4096")


def test_retention_is_shown_where_it_takes_something(tmp_path: Path) -> None:
    """Under `delete` the balance has its line, the table its column, and the partition the rule's sentence."""
    keep_orders(tmp_path)
    changes = ("--with", "cleanup.policy=compact,delete", "--with", "retention.ms=3600000")
    shown = _analyzed(tmp_path, *changes)
    assert "  taken by retention                   0      0            -5         -19           -5        -19" in shown
    assert "orders-1: 1 files, 4 bytes, are older than retention.ms: the log starts at 2." in shown
    assert shown.count("RETENTION") == 2


def test_programs_read_the_same(tmp_path: Path) -> None:
    """The fields of docs/formats.md, amounts as objects, keys in base64."""
    keep_orders(tmp_path)
    found = _analyzed(tmp_path, "--json", "--with", "min.compaction.lag.ms=0", **LAG)
    assert [found[name] for name in ("format_version", "connector", "now_ms", "worker_alive")] == [1, NAME, NOW, False]
    assert found["changes"] == {"min.compaction.lag.ms": "0"}
    (topic,) = found["topics"]
    key = {"key": base64.b64encode(b"a").decode(), "text": "a", "partitions": [0, 1]}
    outdated = {"records": 1, "bytes": 6}
    assert topic["split_keys"] == {"keys": 1, "examples": [key], "outdated": outdated, "deleted": 0}
    assert (topic["partitions"], topic["left_out"], topic["closed"]) == (2, 0, None)
    assert (topic["present"]["after"], topic["changed"]["after"]) == (
        {"records": 8, "bytes": 35},
        {"records": 6, "bytes": 23},
    )
    first = found["partitions"][0]
    assert (first["ingested"], first["published"], first["unread"]) == (10, 3, None)
    assert (first["present"]["fold_end"], first["present"]["held_by"]) == (8, "min.compaction.lag.ms")
    assert (first["changed"]["fold_end"], first["changed"]["held_by"]) == (10, None)
    assert first["present"]["effect"]["latest_horizon_ms"] == NOW + DAY


def test_without_changes_nothing_is_compared(tmp_path: Path) -> None:
    """`changed` is null, `changes` is empty."""
    keep_orders(tmp_path)
    found = _analyzed(tmp_path, "--json")
    assert found["changes"] == {}
    assert [one["changed"] for one in (*found["topics"], *found["partitions"])] == [None] * 3


def test_a_raw_copy_is_not_folded(tmp_path: Path) -> None:
    """With cleanup.policy=delete all that is foldable stays as it is, and no key is called split."""
    keep_orders(tmp_path)
    settings = {"cleanup.policy": "delete", "output.topic": "none", **LAG}
    found = _analyzed(tmp_path, "--json", **settings)["topics"][0]
    assert (found["present"]["unfolded"], found["split_keys"]) == ({"records": 10, "bytes": 41}, None)
    assert "  not folded by key                   10     41" in _analyzed(tmp_path, **settings)


def test_a_closed_topic_ends_where_it_is_published(tmp_path: Path) -> None:
    """Nothing more of it is published, so nothing more of it is folded; the sentence says why."""
    keep_orders(tmp_path, CloseTopic(topic="orders", reason="deleted"))
    shown = _analyzed(tmp_path)
    assert "The topic is closed (deleted): nothing more of it is published." in shown
    assert "  held by a closed topic " in shown


def test_a_partition_that_is_set_aside_is_left_out(tmp_path: Path) -> None:
    """With its error; the others are told as if it were not there."""
    found = Quarantined(since_ms=1, retry_ms=2, failures=3, error="x.parquet is damaged.")
    keep_orders(tmp_path, Quarantine(topic="orders", partition=0, quarantined=found))
    shown = _analyzed(tmp_path)
    assert "Left out: orders-0 cannot be folded. x.parquet is damaged." in shown
    assert "1 partition left out of these figures." in shown
    assert [line.split()[0] for line in shown.splitlines() if line.startswith("orders-")] == ["orders-1"] * 3


def test_a_partition_whose_file_is_gone_is_left_out(tmp_path: Path) -> None:
    """Nobody has set it aside yet; it is found, and the others are told."""
    catalog = keep_orders(tmp_path)
    storage_of(tmp_path).delete(catalog.state.logs[1].runs[0].files[0].path)
    found = _analyzed(tmp_path, "--json")
    assert [bool(one["unread"]) for one in found["partitions"]] == [False, True]
    assert found["partitions"][1]["present"] is None
    assert found["topics"][0]["left_out"] == 1


def test_nothing_is_written(tmp_path: Path) -> None:
    """Neither a commit nor a lock nor a file: the store is as it was, also beside a live worker."""
    keep_orders(tmp_path)
    lock = OwnerLock(storage_of(tmp_path))
    assert lock.claim(this_process(1))
    before = [(info.path, info.bytes, info.modified_ms) for info in storage_of(tmp_path).walk("")]
    try:
        assert "A worker is running." in _analyzed(tmp_path)
    finally:
        after = [(info.path, info.bytes, info.modified_ms) for info in storage_of(tmp_path).walk("")]
        lock.release()
    assert after == before


def test_a_connector_that_never_ran_is_told_what_to_do(tmp_path: Path) -> None:
    """There is nothing to analyze, and no catalog is made: exit code 2."""
    result = invoke("analyze", connector_file(tmp_path), "--worker", worker_file(tmp_path))
    assert (result.exit_code, result.stdout) == (2, "")
    assert f"Connector {NAME} keeps nothing yet" in result.stderr
    assert "next: Run it first" in result.stderr
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize(
    ("change", "code", "error"),
    [
        ("min.compaction.lag=0", 3, 'min.compaction.lag: unknown key; did you mean "min.compaction.lag.ms"?'),
        ("min.compaction.lag.ms=-1", 3, '"-1" is not allowed: allowed is a whole number, 0 or more.'),
        ("max.compaction.lag.ms=5", 3, '"3600000" is greater than max.compaction.lag.ms (5)'),
        ("tasks.max=1", 3, "tasks.max: has no bearing on what a fold does; those that have: cleanup.policy, "),
        ("name=x", 3, "name: has no bearing"),
        ("min.compaction.lag.ms", 2, '--with "min.compaction.lag.ms" is not KEY=VALUE.'),
        ("=5", 2, '--with "=5" is not KEY=VALUE.'),
    ],
)
def test_a_change_is_checked_as_a_file_is(tmp_path: Path, change: str, code: int, error: str) -> None:
    """The same faults and exit code 3 for a wrong key or value; 2 for what is no setting at all."""
    keep(tmp_path, [row(0, b"a", b"1")])
    file = connector_file(tmp_path, **LAG)
    result = invoke("analyze", file, "--worker", worker_file(tmp_path), "--with", change)
    assert (result.exit_code, result.stdout) == (code, "")
    assert error in result.stderr
    assert code == 2 or f"{file} with {change}: " in result.stderr


def test_a_setting_is_changed_once() -> None:
    """Which of two values would count is not guessed; blanks do not count, an = in a value does."""
    with pytest.raises(Exception, match="stands twice"):
        analyze.parsed(["min.compaction.lag.ms=1", "min.compaction.lag.ms =2"])
    assert analyze.parsed([" a = b=c "]) == {"a": "b=c"}


def test_every_bearing_setting_may_be_changed(tmp_path: Path) -> None:
    """Each is a key of the connector file, and stands in it as --with gives it."""
    from connectors.config.engine_settings import engine_settings
    from connectors.config.files import load_connector

    present = load_connector(connector_file(tmp_path)).config
    for key in operation.BEARING:
        value = present.effective()[key]
        assert value is not None
        changed = operation.changed_settings(present, {key: value}, tmp_path)
        assert engine_settings(changed) == engine_settings(present)
    with pytest.raises(ConfigError):
        operation.changed_settings(present, {"fold.full.interval.ms": "soon"}, tmp_path)


@pytest.mark.parametrize(
    "struct", [AnalyzeReport, TopicReport, PartitionReport, SplitKeyCount, SplitKey, Outcome, Effect]
)
def test_every_field_is_documented(struct: type[Struct]) -> None:
    """docs/formats.md names each field that programs read."""
    documented = (ROOT / "docs/formats.md").read_text(encoding="utf-8")
    section = documented[documented.index("### analyze --json") : documented.index("### validate --json")]
    words = set(re.findall(r"\w+", section))
    assert [name for name in struct.__struct_fields__ if name not in words] == []


@pytest.mark.parametrize(
    ("key", "text"),
    [
        (b"customer-1", "customer-1"),
        ("größe".encode(), "größe"),
        (b"", '""'),
        (b"\xff\x00", "0xff00"),
        (b"a\x1b[31m", "0x611b5b33316d"),
        (b"two\nlines", "0x74776f0a6c696e6573"),
        (b"x" * 40, "x" * 40),
        (b"x" * 41, "x" * 39 + "…"),
        (b"\xff" * 1_000, "0x" + "ff" * 18 + "f…"),
    ],
)
def test_a_key_is_shown_safely(key: bytes, text: str) -> None:
    """Text where all of it can be printed, else hex, and never more than 40 characters of it."""
    assert key_text(key) == text
    assert len(text) <= 40
