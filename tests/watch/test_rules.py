"""Prometheus's own tool reads the files of docker/prometheus, and says when each alert fires."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.dashboards import DOCKER, read_alerts

FILES = DOCKER / "prometheus"


class Case(NamedTuple):
    """Series in promtool's words (one value a minute), and which of them fire when so many minutes are over."""

    series: dict[str, str]
    minutes: int
    firing: tuple[str, ...]


def _case(metric: str, fires: str, quiet: str, minutes: int, **others: str) -> Case:
    """Connector `a` shall fire, and `b` not; `others` are series in full with spaces for their ends."""
    series = {f'{metric}{{job="keyfold", connector="{name}"}}': values for name, values in (("a", fires), ("b", quiet))}
    return Case(series | others, minutes, ("a",))


def _status(connector: str, status: str) -> str:
    return f'kafka_connect_connector_status{{job="keyfold", connector="{connector}", status="{status}"}}'


CASES: dict[str, list[Case]] = {
    "KeyfoldWorkerDown": [
        Case({'up{job="keyfold", connector="a"}': "1 0x9", 'up{job="keyfold", connector="b"}': "1x10"}, 4, ("a",)),
        Case({'up{job="keyfold", connector="a"}': "1 0x9"}, 2, ()),
        Case({'up{job="other", connector="a"}': "1x10"}, 4, ("",)),
    ],
    "KeyfoldConnectorFailed": [
        Case({_status("a", "failed"): "1x5", _status("b", "running"): "1x5"}, 2, ("a",)),
        Case({_status("a", "failed"): "_ _ 1x5"}, 2, ()),
    ],
    "KeyfoldConnectorRestarts": [
        _case("keyfold_failures", "0 1 2 3 3", "2x5", 3),
        Case(
            {
                'keyfold_failures{job="keyfold", connector="a"}': "3x5",
                'keyfold_outage_seconds{job="keyfold", connector="a"}': "60x5",
            },
            3,
            (),
        ),
    ],
    "KeyfoldOutage": [_case("keyfold_outage_seconds", "0+60x8", "300x8", 6)],
    "KeyfoldSourceLag": [
        _case("keyfold_source_lag_seconds", "601x9", "600x9", 6),
        Case(
            {
                'keyfold_source_lag_seconds{job="keyfold", connector="a"}': "900x9",
                _status("a", "paused"): "1x9",
            },
            6,
            (),
        ),
        Case({'keyfold_source_lag_seconds{job="keyfold", connector="a"}': "900x9"}, 4, ()),
    ],
    "KeyfoldPublishLag": [
        _case("keyfold_publish_lag_seconds", "301x15", "300x15", 11),
        Case(
            {'keyfold_publish_lag_seconds{job="keyfold", connector="a"}': "400x15", _status("a", "paused"): "1x15"},
            11,
            (),
        ),
    ],
    "KeyfoldPublishHeld": [_case("keyfold_publish_held_partitions", "1x5", "0x5", 2)],
    "KeyfoldTopicClosed": [
        _case("keyfold_closed_topics", "0x9 1x9", "1x19", 12),
        Case({'keyfold_closed_topics{job="keyfold", connector="a"}': "0x9 1x90"}, 90, ()),
    ],
    "KeyfoldReadsNothing": [
        _case(
            "keyfold_open_topics",
            "0x9",
            "1x9",
            6,
            **{_status("a", "running"): "1x9", _status("b", "running"): "1x9"},
        ),
        Case({'keyfold_open_topics{job="keyfold", connector="a"}': "0x9", _status("a", "paused"): "1x9"}, 6, ()),
    ],
    "KeyfoldUncleanablePartition": [_case("keyfold_log_cleaner_uncleanable_partitions", "2x5", "0x5", 2)],
    "KeyfoldCompactionDelay": [_case("keyfold_log_cleaner_max_compaction_delay_seconds", "129601x20", "129600x20", 16)],
    "KeyfoldRecordsRefused": [_case("keyfold_records_refused_total", "0x9 5x9", "5x19", 12)],
    "KeyfoldRecordsRejected": [
        _case("keyfold_records_rejected_total", "0x9 5x9", "5x19", 12),
        Case({'keyfold_records_rejected_total{job="keyfold", connector="a"}': "0x9 5x30"}, 30, ()),
    ],
    "KeyfoldDeadLetters": [_case("keyfold_dead_letters_total", "0x9 1x9", "0x19", 12)],
    "KeyfoldOffsetsLost": [
        _case("keyfold_offsets_lost_total", "0x9 5x9", "5x90", 12)._replace(firing=("a", "b")),
        Case({'keyfold_offsets_lost_total{job="keyfold", connector="a"}': "5x90"}, 80, ()),
    ],
    "KeyfoldSnapshotOld": [_case("keyfold_snapshot_age_seconds", "172801x20", "172800x20", 16)],
}


def _promtool(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["promtool", *map(str, arguments)], capture_output=True, text=True, check=False)


@pytest.mark.parametrize(("kind", "name"), [("rules", "alerts.yml"), ("config", "prometheus.yml")])
def test_prometheus_reads_its_files(kind: str, name: str) -> None:
    """`promtool check` finds nothing."""
    done = _promtool("check", kind, FILES / name)
    assert done.returncode == 0, done.stderr


def test_every_alert_has_a_case_that_fires_and_one_that_does_not() -> None:
    """No alert is left out."""
    assert CASES.keys() == {alert.alert for alert in read_alerts()}
    assert [name for name, cases in CASES.items() if not any(case.firing for case in cases)] == []
    assert [
        name for name, cases in CASES.items() if not any(len(case.firing) < len(case.series) for case in cases)
    ] == []


@pytest.mark.parametrize(("name", "case"), [(name, case) for name, cases in CASES.items() for case in cases])
def test_an_alert_fires_for_what_it_is_about(tmp_path: Path, name: str, case: Case) -> None:
    """`promtool test rules`: it fires beyond its limit, not at it, not before it has lasted, and not for a pause."""
    labels = [f'{{connector="{connector}"}}' if connector else "{}" for connector in case.firing]
    asked = {
        "expr": f'count by (connector) (ALERTS{{alertname="{name}", alertstate="firing"}})',
        "eval_time": f"{case.minutes}m",
        "exp_samples": [{"labels": each, "value": 1} for each in labels],
    }
    series = [{"series": each, "values": values} for each, values in case.series.items()]
    test = {"interval": "1m", "input_series": series, "promql_expr_test": [asked]}
    told = {"rule_files": [str(FILES / "alerts.yml")], "evaluation_interval": "1m", "tests": [test]}
    path = tmp_path / "test.yml"
    path.write_text(json.dumps(told), encoding="utf-8")
    done = _promtool("test", "rules", path)
    assert done.returncode == 0, done.stdout + done.stderr
