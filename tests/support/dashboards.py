"""Prometheus's alerts and Grafana's dashboard of docker/: what they are, and what they ask for."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Literal

import msgspec
import promql_parser
from msgspec import Struct, field
from promql_parser import VectorSelector

DOCKER = Path(__file__).parents[2] / "docker"
VARIABLE = re.compile(r"\$\{?(\w+)\}?")
PLACES = {"__rate_interval": "5m"}
"""What Grafana puts in for its own variables, for example."""


class Labels(Struct, forbid_unknown_fields=True):
    """How urgent an alert is: critical stops or loses something now."""

    severity: Literal["critical", "warning"]


class Annotations(Struct, forbid_unknown_fields=True):
    summary: str
    description: str


class Alert(Struct, forbid_unknown_fields=True):
    """An alerting rule in Prometheus's words."""

    alert: str
    expr: str
    labels: Labels
    annotations: Annotations
    lasting: str = field(default="0s", name="for")


class Group(Struct, forbid_unknown_fields=True):
    name: str
    rules: list[Alert]


class Rules(Struct, forbid_unknown_fields=True):
    """A file of Prometheus's rules."""

    groups: list[Group]


def read_yaml(*path: str) -> Any:
    """Returns a YAML file of docker/."""
    return msgspec.yaml.decode(DOCKER.joinpath(*path).read_bytes())


def read_alerts() -> list[Alert]:
    """Returns the alerting rules of every group."""
    text = (DOCKER / "prometheus" / "alerts.yml").read_bytes()
    return [alert for group in msgspec.yaml.decode(text, type=Rules).groups for alert in group.rules]


def read_dashboard() -> dict[str, Any]:
    """Returns the dashboard as Grafana reads it."""
    found: dict[str, Any] = json.loads((DOCKER / "grafana" / "dashboards" / "keyfold.json").read_text(encoding="utf-8"))
    return found


def read_panels() -> list[dict[str, Any]]:
    """Returns all panels, those inside a row too; without the rows."""
    panels = [inner for panel in read_dashboard()["panels"] for inner in (panel, *panel.get("panels", ()))]
    return [panel for panel in panels if panel["type"] != "row"]


def plain(expression: str) -> str:
    """Returns an expression of the dashboard, in which Grafana has put values in for variables."""
    return VARIABLE.sub(lambda found: PLACES.get(found[1], ".+"), expression)


def shown_expressions() -> list[str]:
    """Returns the expressions of the dashboard, that of its variable too."""
    targets = [target["expr"] for panel in read_panels() for target in panel["targets"]]
    queries = [each["definition"] for each in read_dashboard()["templating"]["list"] if each["type"] == "query"]
    return [plain(text) for text in targets] + [
        re.sub(r"label_values\((\w+), (\w+)\)", r'\1{\2=~".+"}', query) for query in queries
    ]


def nodes_of(expression: str) -> list[Any]:
    """Returns all parts of an expression. Raises ValueError where it is no PromQL."""
    found: list[Any] = []
    promql_parser.walk(promql_parser.parse(expression), pre_visit=found.append)
    return found


def selectors_of(expression: str) -> list[VectorSelector]:
    """Returns what an expression asks for. Raises ValueError where it is no PromQL."""
    return [node for node in nodes_of(expression) if isinstance(node, VectorSelector)]


def asked_names() -> set[str]:
    """Returns the metrics that alerts and dashboard ask for."""
    expressions = [*(alert.expr for alert in read_alerts()), *shown_expressions()]
    return {str(selector.name) for text in expressions for selector in selectors_of(text)}
