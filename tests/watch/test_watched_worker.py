"""A real worker with traffic and with failures, watched by a real Prometheus through docker's alerts and dashboard."""

from __future__ import annotations

import re
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from PIL import Image

from connectors.dev.embedded_kafka import EmbeddedKafka
from tests.support.dashboards import plain, read_dashboard, read_panels
from tests.support.deployment import PROCESS_TIMEOUT_S, Deployment
from tests.support.kafka import create_topic, produce, wait_until
from tests.support.records import random_records
from tests.support.rest_process import RestProcess
from tests.watch.drawing import Span, page
from tests.watch.prometheus import TIMEOUT_S, Prometheus

pytestmark = pytest.mark.timeout(400)

ROOT = Path(__file__).parents[2]
PICTURES = ROOT / "docs" / "pictures"
MOST_BYTES = 150_000
COLORS = 96
"""Enough for letters with soft edges; a picture takes a third of what it would."""

TRAFFIC_S = 75.0
"""For so long the worker is busy before anything is asked: long enough for a line, short enough to wait for."""

FAILING = {
    "KeyfoldConnectorFailed": "stock",
    "KeyfoldConnectorRestarts": "stock",
    "KeyfoldRecordsRejected": "orders",
    "KeyfoldDeadLetters": "orders",
}
"""What fires of this worker: alert → connector."""


class Watched(NamedTuple):
    worker: RestProcess
    prometheus: Prometheus
    span: Span


@contextmanager
def _traffic(bootstrap: str, topics: tuple[str, ...]) -> Iterator[None]:
    """Sends records until the end of the block, now more and now fewer; some have no key, which are rejected."""
    over = threading.Event()

    def send() -> None:
        turn = 0
        while not over.wait(0.5):
            turn += 1
            for at, topic in enumerate(topics):
                records = random_records(turn * 2 + at, 20 + (turn * (7 + 6 * at)) % 60)
                produce(bootstrap, topic, [record._replace(timestamp_ms=None) for record in records])
            if turn % 20 == 0:
                produce(bootstrap, topics[0], [(0, None, b"no key")])

    sending = threading.Thread(target=send)
    sending.start()
    try:
        yield
    finally:
        over.set()
        sending.join(TIMEOUT_S)


def _deployment(folder: Path, bootstrap: str, name: str, **settings: Any) -> Deployment:
    made = Deployment(folder, bootstrap, name)
    made.name = name
    made.settings |= {
        "name": name,
        "snapshot.interval.ms": 20_000,
        "output.topic.config.min.insync.replicas": 1,
        "errors.tolerance": "all",
        "errors.deadletterqueue.topic.name": f"{name}.dead",
        **settings,
    }
    return made


@pytest.fixture(scope="module")
def watched(broker: EmbeddedKafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    """Two connectors that work, and `stock`, of which the topic is not there, for as long as TRAFFIC_S."""
    folder = tmp_path_factory.mktemp("watched")
    for topic in ("orders", "payments"):
        create_topic(broker.bootstrap, topic, 2, cleanup_policy="delete")
    with (
        RestProcess(folder, broker.bootstrap, (), **{"metrics.partitions": "true"}) as worker,
        Prometheus(folder / "prometheus", worker.url.removeprefix("http://")) as prometheus,
    ):
        for name in ("orders", "payments", "stock"):
            worker.create(_deployment(folder, broker.bootstrap, name))
        worker.until_state("orders", "RUNNING")
        worker.until_state("stock", "FAILED")
        start_s = time.time()
        with _traffic(broker.bootstrap, ("orders", "payments")):
            wait_until(lambda: time.time() > start_s + TRAFFIC_S, "there was traffic", TRAFFIC_S + TIMEOUT_S)
            alerts = set(FAILING)
            wait_until(lambda: alerts <= _fired(prometheus), f"{alerts} fire", PROCESS_TIMEOUT_S)
            yield Watched(worker, prometheus, Span(start_s, time.time(), 1))


def _fired(prometheus: Prometheus) -> set[str]:
    return {alert["labels"]["alertname"] for alert in prometheus.firing()}


def test_prometheus_evaluates_every_alert(watched: Watched) -> None:
    """No rule has an error, on series that a real worker gives."""
    found = {rule["name"]: (rule["health"], rule.get("lastError", "")) for rule in watched.prometheus.rules()}
    assert len(found) == 16
    assert {name: told for name, told in found.items() if told != ("ok", "")} == {}


@pytest.mark.parametrize("panel", read_panels(), ids=lambda panel: panel["title"])
def test_every_panel_has_data(watched: Watched, panel: dict[str, Any]) -> None:
    """Prometheus evaluates each expression of a panel without error, and each has values there."""
    for target in panel["targets"]:
        lines = watched.prometheus.between(plain(target["expr"]), *watched.span)
        assert any(value == value for line in lines for _, value in line.points), target["expr"]  # noqa: PLR0124 - NaN


def test_alerts_fire_for_what_fails_and_for_nothing_else(watched: Watched) -> None:
    """A FAILED connector, rejected records and dead letters are told, each with its connector and whole sentences."""
    firing = watched.prometheus.firing()
    assert {alert["labels"]["alertname"]: alert["labels"]["connector"] for alert in firing} == FAILING
    for alert in firing:
        text = f"{alert['annotations']['summary']} {alert['annotations']['description']}"
        assert alert["labels"]["connector"] in text
        assert not re.search(r"<error|no value|\{\{", text)


def test_tiles_have_the_colour_of_what_fires(watched: Watched) -> None:
    """Those of the alerts that fire are not green, and all others are."""
    lit = set()
    for panel in read_panels():
        named = re.search(r"\((Keyfold\w+) fires", panel["description"])
        (value,) = watched.prometheus.now(plain(panel["targets"][0]["expr"])) if named else [None]
        if named and value and value.points[0][1] >= 1:
            lit.add(named[1])
    assert lit == set(FAILING)


def test_links_of_the_dashboard_lead_somewhere(watched: Watched) -> None:
    """The worker answers under the paths of all links with its page, for each connector that Prometheus knows."""
    names = [one.labels["connector"] for one in watched.prometheus.now("kafka_connect_connector_status")]
    assert sorted(names) == ["orders", "payments", "stock"]
    links = set(re.findall(r'"\$\{page:raw\}([^"]*)"', repr(read_dashboard()).replace("'", '"')))
    assert len(links) == 3
    for path in {
        re.sub(r"\$\{__(field.labels|data.fields).connector\}", name, link) for link in links for name in names
    }:
        answer = watched.worker.ask("GET", path, headers={"Accept": "text/html"})
        assert (answer.status_code, answer.headers["content-type"].split(";")[0]) == (200, "text/html"), path


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_picture_of_the_dashboard(watched: Watched, tmp_path: Path, theme: str) -> None:
    """The dashboard's first screen is drawn from this worker's data, for docs/metrics.md."""
    drawn = tmp_path / "dashboard.html"
    drawn.write_text(page(read_dashboard(), watched.prometheus, watched.span, rows=26, theme=theme), encoding="utf-8")
    assert "No data" not in drawn.read_text(encoding="utf-8")
    _photograph(drawn.as_uri(), PICTURES / f"dashboard-{theme}.png", (1420, 990))


def test_a_picture_of_the_alerts(watched: Watched) -> None:
    """Prometheus's own page of the alerts, as it shows those of this worker."""
    _photograph(f"{watched.prometheus.url}/classic/alerts", PICTURES / "prometheus-alerts.png", (1000, 1040))


def _photograph(url: str, into: Path, size: tuple[int, int]) -> None:
    chromium = shutil.which("chromium")
    assert chromium, "needs Chromium: apt-get install chromium"
    into.parent.mkdir(exist_ok=True)
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--virtual-time-budget=3000"]
    sized = [f"--window-size={size[0]},{size[1]}", f"--screenshot={into}"]
    subprocess.run([chromium, *options, *sized, url], check=True, capture_output=True, timeout=120)
    with Image.open(into) as photograph:
        photograph.convert("RGB").quantize(COLORS, dither=Image.Dither.NONE).save(into, optimize=True)
    assert 0 < into.stat().st_size < MOST_BYTES
