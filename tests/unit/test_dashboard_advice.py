"""Grafana's dashboard says what to do: each alert has a tile, and what is red says what comes next."""

from __future__ import annotations

import re
from copy import deepcopy
from pathlib import Path
from typing import Any

import promql_parser
import pytest
from promql_parser import BinaryExpr, NumberLiteral, VectorSelector

from connectors.cli.main import GROUPS
from tests.support.dashboards import Alert, plain, read_alerts, read_dashboard, read_panels, selectors_of

ROOT = Path(__file__).parents[2]
ALERTS = {alert.alert: alert for alert in read_alerts()}
COLORS = {"critical": "red", "warning": "orange"}
PAGE = "${page:raw}/ui"
_FILTER = re.compile(r'connector=~"\$connector"(, )?')
_COMMAND = re.compile(r"`keyfold ([a-z]+)[^`]*`")
_DOCUMENT = re.compile(r"(docs/[a-z]+\.md)#([\w-]+)")


def _limits(panel: dict[str, Any]) -> dict[str, float]:
    """The colours that a panel takes from a value on; none if it has one colour only."""
    steps = panel["fieldConfig"]["defaults"].get("thresholds", {}).get("steps", [])
    return {step["color"]: step["value"] for step in steps if step["value"] is not None}


def _advice(panel: dict[str, Any], color: str) -> str:
    """The paragraph of a panel's description that is about a colour."""
    paragraphs = panel.get("description", "").split("\n\n")
    return next((text for text in paragraphs[1:] if text.startswith(f"{color.capitalize()} ")), "")


def _faults(panel: dict[str, Any]) -> list[str]:
    """What a panel does not tell of its colours."""
    faults = []
    for color in _limits(panel):
        text = _advice(panel, color)
        named = re.search(r"\((Keyfold\w+)[^)]*\): ", text)
        if not text:
            faults.append(f"nothing is said of {color}")
        elif named is None or named[1] not in ALERTS:
            faults.append(f"{color} names no alert")
        elif COLORS[ALERTS[named[1]].labels.severity] != color:
            faults.append(f"{named[1]} is not {color}")
        elif not (_COMMAND.search(text) or _DOCUMENT.search(text)):
            faults.append(f"{color} says nothing to do")
    return faults


def _tile(alert: Alert) -> str:
    """The expression of an alert's tile: how many series fulfil what the alert asks for."""
    return promql_parser.parse(f"count({alert.expr}) or vector(0)").prettify()


def _without_filter(expression: str) -> str:
    return promql_parser.parse(plain(_FILTER.sub("", expression))).prettify()


def _compared(node: Any) -> dict[str, float]:
    """The metrics that an alert compares as they are with a number: `keyfold_failures >= 3`."""
    while isinstance(node, BinaryExpr) and not isinstance(node.rhs, NumberLiteral):
        node = node.lhs
    if not isinstance(node, BinaryExpr) or not isinstance(node.rhs, NumberLiteral):
        return {}
    return {str(node.lhs.name): node.rhs.val} if isinstance(node.lhs, VectorSelector) else {}


@pytest.mark.parametrize("panel", read_panels(), ids=lambda panel: panel["title"])
def test_a_panel_says_what_it_shows_and_what_to_do(panel: dict[str, Any]) -> None:
    """Each panel has a meaning; a colour that calls for somebody names its alert, and a command or page of the docs."""
    assert panel.get("description", "")
    assert _faults(panel) == []


@pytest.mark.parametrize(
    ("description", "faults"),
    [
        ("Late.", ["nothing is said of red"]),
        ("Late.\n\nRed: `keyfold describe`.", ["nothing is said of red"]),
        ("Late.\n\nRed from 1 on: `keyfold describe`.", ["red names no alert"]),
        ("Late.\n\nRed from 1 on (KeyfoldLate): `keyfold describe`.", ["red names no alert"]),
        ("Late.\n\nRed from 1 on (KeyfoldSourceLag): `keyfold describe`.", ["KeyfoldSourceLag is not red"]),
        ("Late.\n\nRed from 1 on (KeyfoldOutage): wait.", ["red says nothing to do"]),
        ("Late.\n\nRed from 1 on (KeyfoldOutage): `keyfold describe`.", []),
    ],
)
def test_a_panel_that_says_too_little_is_told(description: str, faults: list[str]) -> None:
    """A red panel without meaning, alert or action is named."""
    panel = deepcopy(next(each for each in read_panels() if "red" in _limits(each)))
    assert _faults(panel | {"description": description}) == faults


def test_what_panels_advise_is_there() -> None:
    """The commands that descriptions name are commands, and the sections of documents exist."""
    text = " ".join(panel["description"] for panel in read_panels())
    commands = {name for names in GROUPS.values() for name in names.split()}
    assert set(_COMMAND.findall(text)) - commands == set()
    assert [place for place in sorted(set(_DOCUMENT.findall(text))) if place[1] not in _anchors(place[0])] == []


def _anchors(document: str) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", (ROOT / document).read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("alert", read_alerts(), ids=lambda alert: alert.alert)
def test_an_alert_has_a_tile(alert: Alert) -> None:
    """It counts exactly what the alert asks for, has the colour of its severity from 1 on, and says when it fires."""
    tiles = [panel for panel in read_panels() if _without_filter(panel["targets"][0]["expr"]) == _tile(alert)]
    (tile,) = tiles
    color = COLORS[alert.labels.severity]
    assert _limits(tile) == {color: 1}
    fires = "at once" if alert.lasting == "0s" else f"after {alert.lasting}"
    assert f"({alert.alert} fires {fires}): " in _advice(tile, color)


def test_a_tile_asks_for_the_connectors_that_are_chosen() -> None:
    """Each metric of a panel but `up`, ALERTS and the worker's own is asked for with the dashboard's connectors."""
    unfiltered = {
        str(selector.name)
        for panel in read_panels()
        for target in panel["targets"]
        for selector in selectors_of(plain(target["expr"]))
        if 'connector=~".+"' not in str(selector)
    }
    assert unfiltered <= {"up", "ALERTS", "kafka_connect_worker_connector_count"}


def test_lines_of_panels_are_the_limits_of_alerts() -> None:
    """A panel that draws what an alert compares with a number draws the alert's limit, and no other line."""
    limits = {name: (alert, limit) for alert in ALERTS.values() for name, limit in _compared_of(alert).items()}
    drawn = dict[str, str]()
    for panel in (each for each in read_panels() if each["type"] == "timeseries" and _limits(each)):
        for name in {str(each.name) for target in panel["targets"] for each in selectors_of(plain(target["expr"]))}:
            alert, limit = limits[name]
            assert _limits(panel) == {COLORS[alert.labels.severity]: limit}, panel["title"]
            drawn[name] = panel["title"]
    durations = {name for name, (_, limit) in limits.items() if limit > 1}
    assert durations - drawn.keys() == set()


def _compared_of(alert: Alert) -> dict[str, float]:
    return _compared(promql_parser.parse(alert.expr))


def test_links_lead_to_the_workers_page() -> None:
    """From the dashboard to the overview; from each connector's name and line to the connector's page."""
    dashboard = read_dashboard()
    assert [link["url"] for link in dashboard["links"]] == [PAGE]
    page = next(each for each in dashboard["templating"]["list"] if each["name"] == "page")
    assert page["query"] == "http://127.0.0.1:8083"
    for panel in read_panels():
        found = {link["url"] for link in _links(panel)}
        if panel["type"] == "timeseries" and "{{connector}}" in panel["targets"][0]["legendFormat"]:
            assert found == {f"{PAGE}/connectors/${{__field.labels.connector}}"}, panel["title"]
        if panel["type"] == "table":
            assert found == {f"{PAGE}/connectors/${{__data.fields.connector}}"}, panel["title"]


def _links(panel: dict[str, Any]) -> list[dict[str, Any]]:
    config = panel["fieldConfig"]
    values = [prop["value"] for each in config["overrides"] for prop in each["properties"] if prop["id"] == "links"]
    return [*config["defaults"].get("links", []), *(link for value in values for link in value)]
