"""Text for a person: what a stream can show, and tables that align whatever its width."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TextIO

from connectors.terminal_text import one_line

_GAP: Final = "  "
NOTHING: Final = "-"


def is_terminal(stream: TextIO, environ: Mapping[str, str] = os.environ) -> bool:
    """Returns whether `stream` is a terminal that can move its cursor; with TERM=dumb or no TERM it cannot."""
    return stream.isatty() and environ.get("TERM", "dumb").lower() not in ("dumb", "unknown", "")


def is_coloured(stream: TextIO, environ: Mapping[str, str] = os.environ) -> bool:
    """Returns whether text on `stream` may be coloured: on a terminal, unless NO_COLOR is set (https://no-color.org)."""
    return is_terminal(stream, environ) and not environ.get("NO_COLOR")


def table(headers: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Returns `rows` as lines of aligned columns under bold `headers`; numbers are right-aligned, None reads `-`."""
    body = list(rows)
    numeric = [all(isinstance(row[at], int | float | None) for row in body) for at in range(len(headers))]
    texts = [list(headers), *([cell(value) for value in row] for row in body)]
    widths = [max(columns_of(row[at]) for row in texts) for at in range(len(headers))]
    lines = [_line(row, widths, numeric) for row in texts]
    import typer  # here: tasks, which only ask whether a terminal is coloured, do without

    return "\n".join([typer.style(lines[0], bold=True), *lines[1:]])


def _line(row: Sequence[str], widths: Sequence[int], numeric: Sequence[bool]) -> str:
    columns = zip(row, widths, numeric, strict=True)
    return _GAP.join(_padded(text, width, right=right) for text, width, right in columns).rstrip()


def _padded(text: str, width: int, *, right: bool) -> str:
    blanks = " " * (width - columns_of(text))
    return blanks + text if right else text + blanks


def columns_of(text: str) -> int:
    """Returns how many columns of a terminal `text` takes: two for most characters of East Asia, none for accents."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def cut(text: str, width: int | None) -> str:
    """Returns `text` in at most `width` columns, with … in place of what does not fit; None: whole."""
    if width is None or columns_of(text) <= width:
        return text
    if width <= 0:
        return ""
    kept = text[: width - 1]
    while columns_of(kept) > width - 1:
        kept = kept[:-1]
    return f"{kept}…"


def cell(value: object) -> str:
    """Returns `value` as a person reads it, in one line: 336,776; 0.50; - for None."""
    match value:
        case None:
            return NOTHING
        case bool():
            return "yes" if value else "no"
        case int():
            return f"{value:,}"
        case float():
            return f"{value:.2f}"
        case _:
            return one_line(str(value))
