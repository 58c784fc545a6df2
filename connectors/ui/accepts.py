"""Tells a person's browser from a program by the header Accept. Pure."""

from __future__ import annotations

from typing import Final

_HTML: Final = "text/html"
_JSON: Final = "application/json"


def prefers_html(accept: str) -> bool:
    """Returns whether a client names HTML, and JSON not as much: `*/*`, as programs send it, names neither."""
    weights: dict[str, float] = {}
    for part in accept.split(","):
        media, *parameters = (each.strip().lower() for each in part.split(";"))
        weights[media] = max(weights.get(media, 0.0), _weight(parameters))
    return weights.get(_HTML, 0.0) > weights.get(_JSON, 0.0)


def _weight(parameters: list[str]) -> float:
    """Returns the weight `q` of a medium (RFC 9110), 1 if none can be read."""
    text = next((each[2:] for each in parameters if each.startswith("q=")), "1")
    try:
        return float(text)
    except ValueError:
        return 1.0
