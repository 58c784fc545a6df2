"""Prometheus's alerts and Grafana's dashboard, as far as that can be told without either: by a scrape of a worker."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

import promql_parser
import pytest
from compose_spec import PyCompose
from prometheus_client.parser import text_string_to_metric_families
from promql_parser import MatchOp, VectorSelector

from compactor.model.actions import AddSnapshot
from compactor.model.log import empty
from compactor.model.record import TopicPartition
from compactor.model.state import CatalogState
from connectors.metrics.collector import OWN, PARTITIONS
from connectors.metrics.source_lag import SourceEnds, SourceLag
from tests.support.dashboards import (
    DOCKER,
    PLACES,
    VARIABLE,
    Alert,
    nodes_of,
    plain,
    read_alerts,
    read_dashboard,
    read_panels,
    read_yaml,
    selectors_of,
    shown_expressions,
)
from tests.support.rest import RestWorker, rest_worker

COLUMNS = 24
WATCHED = {
    "up",
    "kafka_connect_connector_status",
    "keyfold_publish_lag_seconds",
    "keyfold_publish_held_partitions",
    "keyfold_closed_topics",
    "keyfold_log_cleaner_uncleanable_partitions",
    "keyfold_log_cleaner_max_compaction_delay_seconds",
    "keyfold_records_refused_total",
    "keyfold_dead_letters_total",
    "keyfold_offsets_lost_total",
    "keyfold_snapshot_age_seconds",
}
"""What an operator must hear of without looking."""


class Sample(NamedTuple):
    """A series of a scrape, with the labels that Prometheus adds."""

    name: str
    labels: Mapping[str, str]


def _is_meant(selector: VectorSelector, sample: Sample) -> bool:
    """Whether the selector takes the sample: a label that is not there counts as empty, as in Prometheus."""
    return selector.name == sample.name and all(
        _fits(matcher.op, matcher.value, sample.labels.get(matcher.name, "")) for matcher in selector.matchers.matchers
    )


def _fits(op: MatchOp, wanted: str, value: str) -> bool:
    equal = value == wanted if op in (MatchOp.Equal, MatchOp.NotEqual) else bool(re.fullmatch(wanted, value))
    return equal is (op in (MatchOp.Equal, MatchOp.Re))


def _faults(expression: str, scrape: Sequence[Sample]) -> list[str]:
    """The selectors of an expression that find nothing, and the labels it groups by that nothing has."""
    found = {str(each): [one for one in scrape if _is_meant(each, one)] for each in selectors_of(expression)}
    known = {label for samples in found.values() for sample in samples for label in sample.labels}
    return [name for name, samples in found.items() if not samples] + sorted(_grouped(expression) - known)


def _grouped(expression: str) -> set[str]:
    """The labels that an expression names to group or to match by."""
    modifiers = [getattr(node, "modifier", None) for node in nodes_of(expression)]
    named = [getattr(each, "matching", None) or each for each in modifiers]
    return {label for each in named for label in getattr(each, "labels", ())}


def _state(name: str) -> CatalogState:
    snapshot = AddSnapshot(
        topic=name, id="20261121T023000Z-1", path="", created_ms=1, source_offsets={"0": 1}, records=1, bytes=1
    )
    return CatalogState(
        connector=name, buckets=1, logs=(empty(TopicPartition(name, 0), 0, 0, None),), snapshots=(snapshot,)
    )


_LAG = {log.tp: SourceLag(3, 1) for name in ("running", "failed", "paused") for log in _state(name).logs}
"""How far those connectors are behind their sources."""


def _prepare(worker: RestWorker) -> None:
    """Makes a connector in each state that an expression asks for."""
    for name in ("running", "failed", "paused"):
        worker.create(name)
        worker.supervisor(name).catalog_state = _state(name)
    worker.supervisor("failed").fail("Away.")
    worker.ask("PUT", "/connectors/paused/pause")


def _samples(text: str) -> Iterator[Sample]:
    """The samples of a scrape as Prometheus keeps them, and those that it makes itself."""
    added = {
        "job": read_yaml("prometheus", "prometheus.yml")["scrape_configs"][0]["job_name"],
        "instance": "worker:8083",
    }
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            yield Sample(sample.name, {**sample.labels, **added})
    yield Sample("up", added)
    for alert in read_alerts():
        more = {"alertname": alert.alert, "alertstate": "firing", "severity": alert.labels.severity}
        yield Sample("ALERTS", {**added, **more, "connector": "running"})


@pytest.fixture(scope="module")
def scrape(tmp_path_factory: pytest.TempPathFactory) -> list[Sample]:
    """What a worker's /metrics says, over a real socket."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SourceEnds, "start", lambda _: None)
        patch.setattr(SourceEnds, "lag", lambda *_: _LAG)
        with rest_worker(tmp_path_factory.mktemp("worker"), **{"metrics.partitions": "true"}) as worker:
            _prepare(worker)
            return list(_samples(worker.ask("GET", "/metrics").text))


@pytest.mark.parametrize("alert", read_alerts(), ids=lambda alert: alert.alert)
def test_an_alert_asks_for_what_there_is(alert: Alert, scrape: list[Sample]) -> None:
    """Each metric that an alert names is one of a worker's, with labels and values that it has."""
    assert _faults(alert.expr, scrape) == []


@pytest.mark.parametrize("alert", read_alerts(), ids=lambda alert: alert.alert)
def test_an_alert_tells_of_what_it_is(alert: Alert, scrape: list[Sample]) -> None:
    """It lasts for a duration of Prometheus's, and its sentences name labels that its series have."""
    assert alert.lasting == "0s" or promql_parser.parse_duration(alert.lasting)
    taken = [sample for each in selectors_of(alert.expr) for sample in scrape if _is_meant(each, sample)]
    named = re.findall(r"\$labels\.(\w+)", f"{alert.annotations.summary} {alert.annotations.description}")
    assert set(named) <= {label for sample in taken for label in sample.labels}
    assert alert.annotations.summary.endswith(".")


def test_alerts_watch_over_everything() -> None:
    """There is an alert for each thing that an operator must hear of, under a name of its own."""
    names = [alert.alert for alert in read_alerts()]
    assert len(set(names)) == len(names)
    assert [name for name in names if not re.fullmatch("Keyfold[A-Za-z]+", name)] == []
    assert {each.name for alert in read_alerts() for each in selectors_of(alert.expr)} >= WATCHED


@pytest.mark.parametrize("expression", sorted(set(shown_expressions())))
def test_the_dashboard_asks_for_what_there_is(expression: str, scrape: list[Sample]) -> None:
    """Each metric that a panel names is one of a worker's, with labels and values that it has."""
    assert _faults(expression, scrape) == []


def test_the_dashboard_shows_everything() -> None:
    """Every metric of keyfold's own is in a panel."""
    shown = {each.name for expression in shown_expressions() for each in selectors_of(expression)}
    own = {f"{one.name}_total" if one.kind == "counter" else one.name for one in OWN} | {one[0] for one in PARTITIONS}
    others = {"keyfold_publish_freshness_seconds_bucket", "keyfold_log_cleaner_duration_seconds_sum"}
    assert (own | others) - shown == set()


def test_legends_name_labels_that_there_are(scrape: list[Sample]) -> None:
    """A legend names labels by which its expression groups."""
    for target in (target for panel in read_panels() for target in panel["targets"]):
        named = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
        selectors = selectors_of(plain(target["expr"]))
        kept = _grouped(plain(target["expr"]))
        if "topk" in target["expr"]:  # which keeps all labels
            kept = {label for sample in scrape if _is_meant(selectors[0], sample) for label in sample.labels}
        assert named <= kept, target


def test_panels_lie_beside_one_another() -> None:
    """No two panels overlap, none is wider than the page, and each has a number of its own."""
    panels = read_dashboard()["panels"]
    every = [*panels, *(inner for panel in panels for inner in panel.get("panels", ()))]
    assert len({panel["id"] for panel in every}) == len(every)
    places = [panel["gridPos"] for panel in every]
    assert [place for place in places if place["x"] + place["w"] > COLUMNS] == []
    assert [pair for pair in combinations(places, 2) if _overlap(*pair)] == []


def _overlap(one: Mapping[str, int], other: Mapping[str, int]) -> bool:
    return all(
        one[side] < other[side] + other[length] and other[side] < one[side] + one[length]
        for side, length in (("x", "w"), ("y", "h"))
    )


def test_the_dashboard_has_the_variables_that_it_uses() -> None:
    """A variable is one of the dashboard's, or Grafana's own; panels ask the data source that is chosen."""
    dashboard = read_dashboard()
    own = {variable["name"] for variable in dashboard["templating"]["list"]}
    used = {name for panel in read_panels() for target in panel["targets"] for name in VARIABLE.findall(target["expr"])}
    assert used == {"connector", *PLACES}
    assert own == {"connector", "datasource", "page"}
    chosen = {"type": "prometheus", "uid": "${datasource}"}
    assert [panel["title"] for panel in read_panels() if panel["datasource"] != chosen] == []


@pytest.mark.parametrize(
    ("expression", "faults"),
    [
        ("keyfold_partitions", []),
        ('sum by (connector) (rate(keyfold_records_read_total{connector=~".+"}[5m]))', []),
        ("keyfold_records_read", ["keyfold_records_read{}"]),
        ('keyfold_partitions{name="running"}', ['keyfold_partitions{name="running"}']),
        (
            'kafka_connect_connector_status{status="FAILED"}',
            ['kafka_connect_connector_status{status="FAILED"}'],
        ),
        ("sum by (topic) (keyfold_partitions)", ["topic"]),
        ("keyfold_failures unless on (task) keyfold_partitions", ["task"]),
    ],
)
def test_what_is_misspelt_is_found(expression: str, faults: list[str], scrape: list[Sample]) -> None:
    """The search knows a name, a label, a value and a grouping that no scrape has."""
    assert _faults(expression, scrape) == faults


def test_what_is_no_promql_is_found() -> None:
    """The parser refuses what Prometheus would."""
    with pytest.raises(ValueError, match=r"."):
        selectors_of("sum by (connector (keyfold_partitions)")


def test_prometheus_asks_the_worker() -> None:
    """Its target is the service of the compose file, and its files of rules lie where it is told."""
    config = read_yaml("prometheus", "prometheus.yml")
    services = PyCompose.from_yaml((DOCKER / "compose.yaml").read_text(encoding="utf-8")).to_dict()["services"]
    listener = services["worker"]["environment"]["KEYFOLD_LISTENERS"]
    targets = [
        each for one in config["scrape_configs"] for static in one["static_configs"] for each in static["targets"]
    ]
    assert targets == [f"worker:{listener.rsplit(':', 1)[1]}"]
    assert [name for name in config["rule_files"] if not (DOCKER / "prometheus" / name).is_file()] == []
    assert [volume for volume in services["prometheus"]["volumes"] if volume.startswith("./")] == [
        "./prometheus:/etc/prometheus:ro"
    ]


def test_grafana_asks_prometheus_and_finds_the_dashboard() -> None:
    """Its data source is the service of the compose file; its dashboards lie where the compose file mounts them."""
    services = PyCompose.from_yaml((DOCKER / "compose.yaml").read_text(encoding="utf-8")).to_dict()["services"]
    mounted = dict(volume.split(":")[:2] for volume in services["grafana"]["volumes"])
    sources = read_yaml("grafana", "datasources", "keyfold.yml")["datasources"]
    assert [(one["type"], one["url"], one["isDefault"]) for one in sources] == [
        ("prometheus", "http://prometheus:9090", True)
    ]
    assert (
        sources[0]["jsonData"]["timeInterval"] == read_yaml("prometheus", "prometheus.yml")["global"]["scrape_interval"]
    )
    (provider,) = read_yaml("grafana", "dashboards", "keyfold.yml")["providers"]
    assert provider["options"]["path"] == mounted["./grafana/dashboards"]
    home = services["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert home == f"{mounted['./grafana/dashboards']}/keyfold.json"
    assert mounted["./grafana/datasources"] == "/etc/grafana/provisioning/datasources"
