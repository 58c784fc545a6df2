"""The table of all rows: what was measured, against what it must come to."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator

from benchmarks.figures import Figure
from benchmarks.results import Results
from benchmarks.rows import Row

_FIGURES_HEAD = "| what | must | aim | measured | runs |\n|---|---|---|---|---|"
_HEAD = "| what | must | aim | measured | runs | keyfold | other |\n|---|---|---|---|---|---|---|"


def table(rows: Iterable[Row], results: Results) -> str:
    """Markdown; a row that falls short is marked, one that was not measured says why."""
    return "\n".join([_HEAD, *(_line(row, results) for row in rows)])


def figures(wanted: Iterable[Figure], results: Results) -> str:
    """Markdown: the medians of what a worker takes by itself."""
    return "\n".join([_FIGURES_HEAD, *(line for figure in wanted for line in _figure(figure, results))])


def _figure(figure: Figure, results: Results) -> Iterator[str]:
    for name, (must, aim) in figure.limits.items():
        found = results.values(figure.id, name)
        median = statistics.median(found) if found else None
        said = "not measured" if median is None else f"{median:.2f}{'' if median <= must else ' **short**'}"
        yield f"| {figure.what}: {name} | ≤ {must:g} | {aim:g} | {said} | {len(found)} |"


def ratio(row: Row, results: Results) -> float | None:
    """Records per second of ours over the other's; None where one of them is missing."""
    ours = results.seconds(row.id, row.ours.name)
    other = results.seconds(row.id, row.other.name)
    return None if not ours or not other or ours <= 0 else other / ours


def _line(row: Row, results: Results) -> str:
    wanted = f"≥ {row.must:g} x | {row.aim:g} x"
    found = ratio(row, results)
    if found is None:
        missing = [results.missing[one.name] for one in (row.ours, row.other) if one.name in results.missing]
        return f"| {row.what} | {wanted} | {'; '.join(missing) or 'not measured'} | | | |"
    mark = "" if found >= row.must else " **short**"
    rates = " | ".join(_rate(row, one.name, results) for one in (row.ours, row.other))
    return f"| {row.what} | {wanted} | {found:.2f} x{mark} | {len(results.of(row.id, row.ours.name))} | {rates} |"


def _rate(row: Row, program: str, results: Results) -> str:
    runs = results.of(row.id, program)
    seconds = results.seconds(row.id, program)
    peak = max(one.used.peak_rss for one in runs) / (1 << 30)
    return f"{program}: {runs[0].records / (seconds or 1) / 1e6:.3f} M/s, {peak:.1f} GiB"
