from __future__ import annotations

from pathlib import Path

from benchmarks.harness.results import percentile
from benchmarks.rows.brokerless import TOPIC, BrokerlessConnector
from benchmarks.rows.catalog_commits import CLEANER_EVERY, PARTITIONS, catalog_commits
from benchmarks.rows.cleaner_model import CleanerModel, distinct
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
    connector, model = BrokerlessConnector(tmp_path, PARTITIONS, 0), CleanerModel(TOPIC, 1_000_000)
    for number in range(6 * CLEANER_EVERY):
        ends = dict.fromkeys(range(PARTITIONS), (number + 1) * 10)
        connector.append(model.parts(number, PARTITIONS, 10), ends, number)
        connector.publish(number)
        if number % CLEANER_EVERY == CLEANER_EVERY - 1:
            model.clean(connector.catalog, number)
    logs = connector.catalog.state.logs
    assert all(log.base is not None and log.base.level == BASE for log in logs)
    assert all(any(run.level == 1 for run in log.runs) for log in logs)
    assert all(len(log.runs) < 4 * CLEANER_EVERY for log in logs)


def test_the_measurement_has_a_ratio_and_both_ends() -> None:
    """A few micro-batches give the ratio of both medians and the percentiles, none of them 0."""
    values = catalog_commits(batches=4)
    assert values["last over first"] == values["last, ms"] / values["first, ms"]
    assert min(values.values()) > 0
