"""Draws the dashboard from Prometheus's data, where no Grafana is at hand: a tool of the tests, and no Grafana.

It reads of a panel what a picture needs: place, title, unit, limits with their colours, legend, a table's columns.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from html import escape
from itertools import cycle
from typing import Any, NamedTuple

from tests.support.dashboards import plain
from tests.watch.prometheus import Prometheus, Series

COLUMN_PX, ROW_PX = 58, 36
RATE = "10s"
"""What Grafana puts in for $__rate_interval if Prometheus scrapes as often as that of the tests."""

_LINES = ("#5b9bd5", "#e0a030", "#6cb86c", "#c678c6", "#d96a6a", "#5bbdbd", "#a0a05a", "#8f8fe0")
_SIGNAL = {"green": "#3c9d4e", "red": "#d03a3a", "orange": "#d98218", "blue": "#3d71d9"}
_STYLE = """
body{margin:0;padding:10px;font:13px "DejaVu Sans",sans-serif;background:var(--back);color:var(--text);width:1400px}
body.dark{--back:#111217;--panel:#181b1f;--text:#ccccdc;--dim:#8e8e9c;--edge:#2c3036}
body.light{--back:#f4f5f5;--panel:#fff;--text:#24292e;--dim:#6b7178;--edge:#dcdfe3}
h1{font-size:17px;margin:2px 4px 8px;font-weight:600}
h1 small{font-weight:400;font-size:12px;color:var(--dim);margin-left:12px}
main{display:grid;grid-template-columns:repeat(24,1fr);grid-auto-rows:28px;gap:8px}
section{background:var(--panel);border:1px solid var(--edge);border-radius:3px;padding:6px 8px;overflow:hidden;
 display:flex;flex-direction:column;min-width:0}
h2{font-size:12px;font-weight:600;margin:0 0 4px;white-space:nowrap}
section.row{background:none;border:0;padding:4px}
section.stat b{margin:auto;font-size:30px;font-weight:600}
section.signal{color:#fff;border:0}section.low b{font-size:20px}
table{border-collapse:collapse;width:100%}td,th{text-align:left;padding:4px 8px;border-bottom:1px solid var(--edge)}
th{color:var(--dim);font-weight:400}
svg{flex:1;min-height:0;width:100%}svg text{fill:var(--dim);font-size:10px}
p{margin:2px 0 0;font-size:11px;color:var(--dim);line-height:1.35}
i{display:inline-block;width:12px;height:3px;margin:3px 4px 3px 0}
p span{margin-right:10px;white-space:nowrap}
"""


class Span(NamedTuple):
    """The time that is drawn, in seconds since 1970."""

    start_s: float
    end_s: float
    step_s: float


def page(dashboard: Mapping[str, Any], prometheus: Prometheus, span: Span, *, rows: int, theme: str) -> str:
    """Returns the first `rows` rows of the dashboard's grid as a page; `theme` is light or dark."""
    panels = [panel for panel in dashboard["panels"] if panel["gridPos"]["y"] + panel["gridPos"]["h"] <= rows]
    drawn = "".join(_panel(panel, prometheus, span) for panel in panels)
    note = "its data is that of a real Prometheus and worker; drawn by keyfold's tests, not by Grafana"
    return (
        f"<!doctype html><meta charset=utf-8><title>keyfold</title><style>{_STYLE}</style>"
        f'<body class="{theme}"><h1>keyfold<small>{note}</small></h1><main>{drawn}</main></body>'
    )


def _panel(panel: Mapping[str, Any], prometheus: Prometheus, span: Span) -> str:
    place = panel["gridPos"]
    grid = f"grid-column:{place['x'] + 1}/span {place['w']};grid-row:{place['y'] + 1}/span {place['h']}"
    classes, style, body = _BODIES[panel["type"]](panel, prometheus, span)
    title = escape(panel["title"])
    return f'<section class="{classes}" style="{grid};{style}"><h2>{title}</h2>{body}</section>'


def _row(panel: Mapping[str, Any], prometheus: Prometheus, span: Span) -> tuple[str, str, str]:
    return "row", "", ""


def _stat(panel: Mapping[str, Any], prometheus: Prometheus, span: Span) -> tuple[str, str, str]:
    found = prometheus.now(plain(panel["targets"][0]["expr"]))
    value = found[0].points[0][1] if found else None
    steps = panel["fieldConfig"]["defaults"]["thresholds"]["steps"]
    reached = [step["color"] for step in steps if step["value"] is None or (value or 0) >= step["value"]]
    low = " low" if panel["gridPos"]["h"] < 4 else ""
    text = "No data" if value is None else f"{value:g}"
    if len(steps) == 1:
        return f"stat{low}", "", f'<b style="color:{_SIGNAL[reached[-1]]}">{text}</b>'
    return f"stat signal{low}", f"background:{_SIGNAL[reached[-1]]}", f"<b>{text}</b>"


def _table(panel: Mapping[str, Any], prometheus: Prometheus, span: Span) -> tuple[str, str, str]:
    names = panel["transformations"][0]["options"]["include"]["names"]
    rows = [one.labels for one in prometheus.now(plain(panel["targets"][0]["expr"]))]
    colors = _mapped(panel)
    cells = [
        "".join(
            f'<td style="color:{colors.get(row.get(name, ""), "")}">{escape(row.get(name, ""))}</td>' for name in names
        )
        for row in rows
    ]
    head = "".join(f"<th>{name}</th>" for name in names)
    return "table", "", f"<table><tr>{head}</tr>{''.join(f'<tr>{each}</tr>' for each in cells)}</table>"


def _mapped(panel: Mapping[str, Any]) -> dict[str, str]:
    """The colours that a table gives to words."""
    properties = [each for one in panel["fieldConfig"]["overrides"] for each in one["properties"]]
    options = [value["options"] for each in properties if each["id"] == "mappings" for value in each["value"]]
    return {word: _SIGNAL[told["color"]] for each in options for word, told in each.items()}


def _chart(panel: Mapping[str, Any], prometheus: Prometheus, span: Span) -> tuple[str, str, str]:
    lines = [
        (_legend(target["legendFormat"], one.labels), one)
        for target in panel["targets"]
        for one in prometheus.between(plain(target["expr"].replace("$__rate_interval", RATE)), *span)
    ]
    colored = list(zip(lines, cycle(_LINES), strict=False))
    place, config = panel["gridPos"], panel["fieldConfig"]["defaults"]
    width, height = place["w"] * COLUMN_PX - 18, place["h"] * ROW_PX - (44 if len(lines) < 5 else 62)
    chart = _svg([(one, color) for (_, one), color in colored], config, (width, height), span)
    shown = [f'<span><i style="background:{color}"></i>{escape(name)}</span>' for (name, _), color in colored[:12]]
    more = f"<span>and {len(colored) - 12} more</span>" if len(colored) > 12 else ""
    return "chart", "", f"{chart}<p>{''.join(shown)}{more}</p>"


def _svg(lines: Sequence[tuple[Series, str]], config: Mapping[str, Any], size: tuple[int, int], span: Span) -> str:
    width, height = size
    left, bottom = 62, height - 16
    values = [value for one, _ in lines for _, value in one.points if value == value]  # noqa: PLR0124 - not NaN
    limits = [step for step in config.get("thresholds", {}).get("steps", []) if step["value"] is not None]
    near = [step["value"] for step in limits if step["value"] <= 4 * max(values, default=0)]
    top = config.get("max") or _round(max([*values, *near], default=0) * 1.05 or 1)

    def x(at_s: float) -> float:
        return left + (at_s - span.start_s) / (span.end_s - span.start_s) * (width - left - 4)

    def y(value: float) -> float:
        return bottom - min(value / top, 1) * (bottom - 6)

    parts = []
    for part in (0, 0.25, 0.5, 0.75, 1):
        at, text = y(part * top), unit(part * top, config.get("unit", "short"))
        parts.append(f'<path d="M{left} {at:.1f}H{width}" stroke="var(--edge)"/>')
        parts.append(f'<text x="{left - 6}" y="{at + 3:.1f}" text-anchor="end">{text}</text>')
    for step in limits:
        if step["value"] <= top:
            path = f"M{left} {y(step['value']):.1f}H{width}"
            parts.append(f'<path d="{path}" stroke="{_SIGNAL[step["color"]]}" stroke-dasharray="8 5"/>')
    for one, color in lines:
        points = " ".join(f"{x(at):.1f},{y(value):.1f}" for at, value in one.points if value == value)  # noqa: PLR0124
        parts.append(f'<polyline points="{points}" fill="none" stroke="{color}" stroke-width="1.5"/>')
    ago = unit(span.end_s - span.start_s, "s")
    parts.append(f'<text x="{left}" y="{height - 2}">{ago} ago</text>')
    parts.append(f'<text x="{width - 4}" y="{height - 2}" text-anchor="end">now</text>')
    return f'<svg viewBox="0 0 {width} {height}">{"".join(parts)}</svg>'


def _round(value: float) -> float:
    """The next number of which a quarter is short."""
    size = 10.0 ** math.floor(math.log10(value))
    return next(part * size for part in (1, 1.2, 1.6, 2, 2.4, 3.2, 4, 6, 8, 10) if part * size >= value)


def _legend(form: str, labels: Mapping[str, str]) -> str:
    return re.sub(r"\{\{(\w+)\}\}", lambda found: labels.get(found[1], ""), form)


def unit(value: float, name: str) -> str:
    """Returns a number in a unit of Grafana's, as far as the dashboard uses them."""
    if name == "percentunit":
        return f"{value * 100:.3g} %"
    if name == "s":
        return next(
            (
                f"{value / size:.3g} {short}"
                for short, size in (("d", 86_400), ("h", 3_600), ("min", 60))
                if value >= size
            ),
            f"{value:.3g} s" if value >= 1 or not value else f"{value * 1_000:.3g} ms",
        )
    ends = {"cps": "/s", "ops": "/s", "bytes": "B", "Bps": "B/s", "short": ""}[name]
    base = 1_024 if ends.startswith("B") else 1_000
    prefixes = ["", "Ki", "Mi", "Gi"] if base == 1_024 else ["", "K", "M", "G"]
    power = 0
    while value >= base and power < 3:
        value, power = value / base, power + 1
    return f"{value:.3g} {prefixes[power]}{ends}".strip()


_BODIES: Mapping[str, Callable[[Mapping[str, Any], Prometheus, Span], tuple[str, str, str]]] = {
    "row": _row,
    "stat": _stat,
    "table": _table,
    "timeseries": _chart,
}
