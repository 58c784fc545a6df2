"""A table is bootstrapped from a snapshot and kept current: no change is missed, and none comes twice."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import closing
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from connectors.bootstrap import Change, TableRecord, open_table, resume
from connectors.errors import ResumeError
from tests.support.deployment import Deployment
from tests.support.kafka import Read, consume_all, create_topic, delete_topic, produce
from tests.support.records import live_records, random_records
from tests.support.snapshot_recipes import recipes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = Path(__file__).parents[2] / "docs" / "bootstrap.md"
Living = dict[tuple[int, bytes], bytes]


def _living(records: Iterable[TableRecord]) -> Living:
    return {(record.partition or 0, record.key): record.value or b"" for record in records}


def _expected(deployment: Deployment) -> Living:
    return {(at, key or b""): value for (at, key), (_, value) in live_records(deployment).items()}


def _applied(living: Mapping[tuple[int, bytes], bytes], changes: Iterable[Change]) -> Living:
    table = dict(living)
    for change in changes:
        table.pop((change.partition, change.key), None)
        if change.value is not None:
            table[change.partition, change.key] = change.value
    return table


def _read(changes: Iterable[Change]) -> list[tuple[int, int, bytes, bytes | None]]:
    return [(change.partition, change.offset, change.key, change.value) for change in changes]


def _seen(output: Iterable[Read]) -> list[tuple[int, int, bytes | None, bytes | None]]:
    return [(read.partition, read.offset, read.key, read.value) for read in output]


@pytest.mark.long
def test_a_table_is_the_snapshot_and_each_change_once(spark: SparkSession, deployment: Deployment) -> None:
    """A table stays current; a reader that stores its position goes on with the very next change."""
    kafka = {"bootstrap.servers": deployment.bootstrap}
    produce(deployment.bootstrap, deployment.topic, [(0, b"ann", b"a"), *random_records(1, 300)])
    deployment.run_once(spark)
    opened = open_table(deployment.snapshots.location, kafka)
    begun = _living(opened.records())
    assert begun == _expected(deployment)
    with opened.table() as table, closing(opened.changes()) as changes:
        assert (_living(table), len(table)) == (begun, len(begun))
        produce(deployment.bootstrap, deployment.topic, random_records(2, 300))
        deployment.run_once(spark)
        expected = _expected(deployment)
        table.catch_up(30)
        assert (_living(table), len(table)) == (expected, len(expected))
        assert (table.freshness() or 60) < 60
        starts = opened.position.numbers
        output = consume_all(deployment.bootstrap, deployment.output)
        later = [read for read in output if read.offset >= starts[read.partition]]
        first = list(islice(changes, len(later) // 2))
        position = changes.position.encode()
    with closing(resume(position, kafka)) as changes:
        rest = list(islice(changes, len(later) - len(first)))
        assert not changes.poll(2)
        position = changes.position.encode()
    assert sorted(_read([*first, *rest])) == sorted(_seen(later))
    assert _applied(begun, [*first, *rest]) == expected
    _run_page(deployment)
    _recreate(deployment)
    with pytest.raises(ResumeError, match="was recreated"):
        resume(position, kafka)


def _run_page(deployment: Deployment) -> None:
    """Runs the examples of docs/bootstrap.md, one after the other, but those of typed snapshots."""
    names: dict[str, object] = {}
    for code in chain.from_iterable(codes for heading, codes in recipes(PAGE).items() if "Typed" not in heading):
        here = code.replace("snapshots/customers/customers", deployment.snapshots.location)
        exec(compile(here.replace("127.0.0.1:9092", deployment.bootstrap), str(PAGE), "exec"), names)
    assert (names["ann"], names["count"]) == (b"a", len(_expected(deployment)))


def _recreate(deployment: Deployment) -> None:
    delete_topic(deployment.bootstrap, deployment.output)
    create_topic(deployment.bootstrap, deployment.output, 2, cleanup_policy="compact")
