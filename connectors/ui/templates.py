"""Makes HTML of templates: everything that is written into them is escaped, printable and bounded."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from connectors.counted import counted
from connectors.ui import texts
from connectors.ui.sparkline import minutes, sparkline
from connectors.ui.static_files import static_url
from connectors.ui.what_if.bars import drawn

FOLDER: Final = Path(__file__).parent / "templates"


@cache
def environment() -> Environment:
    """Returns the templates, which are compiled when they are asked for first."""
    made = Environment(
        loader=FileSystemLoader(FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=texts.shown,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.filters.update(
        count=texts.count,
        counted=counted,
        size=texts.size,
        duration=texts.duration,
        ago=texts.time_tag,
        within=texts.within_tag,
        prose=texts.prose,
        clock=texts.clock_tag,
        first_line=texts.first_line,
        part=lambda text: quote(text, safe=""),
    )
    made.globals["static"] = static_url
    made.globals["sparkline"] = sparkline
    made.globals["minutes"] = minutes
    made.globals["stacked"] = drawn
    return made


def render(template: str, /, **values: Any) -> str:
    """Returns the HTML of the template of this name."""
    return environment().get_template(template).render(**values)
