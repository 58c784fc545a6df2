from __future__ import annotations

from pathlib import Path

from benchmarks.harness.figure import percentile
from benchmarks.rows.catalog import CLEANER_EVERY, PARTITIONS, catalog
from benchmarks.rows.kept import TOPIC, Kept
from benchmarks.rows.modelled import Model, distinct
from compactor.model.log import BASE


def test_records_that_all_have_keys_of_their_own_stay_and_many_over_few_keys_leave_one_each() -> None:
    """A modelled fold keeps nearly all of a few records over many keys, and no more than all keys of many records."""
    assert distinct(1_000_000, 100) == 100
    assert distinct(1_000, 1_000_000) == 1_000
    assert 0.63 < distinct(10_000, 10_000) / 10_000 < 0.64


def test_a_percentile_is_one_of_the_values() -> None:
    """The 99th percentile is the largest of few values, and leaves out one of a hundred."""
    assert percentile([3.0, 1.0, 2.0], 0.99) == 3.0
    assert percentile([float(one) for one in range(200)], 0.99) == 198.0


def test_runs_are_replaced_as_a_worker_would_and_their_number_stays_small(tmp_path: Path) -> None:
    """With the modelled cleaner logs get a base run and merges, and few runs wait, whatever has come in."""
    kept, model = Kept(tmp_path, PARTITIONS, 0), Model(TOPIC, 1_000_000)
    for number in range(6 * CLEANER_EVERY):
        kept.append(model.parts(number, PARTITIONS, 10), dict.fromkeys(range(PARTITIONS), (number + 1) * 10), number)
        kept.publish(number)
        if number % CLEANER_EVERY == CLEANER_EVERY - 1:
            model.clean(kept.catalog, number)
    logs = kept.catalog.state.logs
    assert all(log.base is not None and log.base.level == BASE for log in logs)
    assert all(any(run.level == 1 for run in log.runs) for log in logs)
    assert all(len(log.runs) < 4 * CLEANER_EVERY for log in logs)


def test_the_figure_has_a_ratio_and_both_ends() -> None:
    """A few micro-batches give the ratio of both medians and the percentiles, none of them 0."""
    values = catalog(batches=4)
    assert values["last over first"] == values["last, ms"] / values["first, ms"]
    assert min(values.values()) > 0
