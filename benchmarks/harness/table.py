"""The table of all rows: what was measured, against what it must come to."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Mapping

from benchmarks.harness.figure import Figure
from benchmarks.harness.results import Results
from benchmarks.rows.rows import Row

_FIGURES_HEAD = "| what | must | aim | measured | runs |\n|---|---|---|---|---|"
_HEAD = "| what | must | aim | measured | runs | keyfold | other |\n|---|---|---|---|---|---|---|"
_SHORT = " **short**"


def whole(rows: Iterable[Row], wanted: Iterable[Figure], results: Results) -> str:
    """Markdown: everything, and what is to be known about it."""
    scaled = (
        [] if results.scale == 1 else [f"{results.scale:g} times as many records as the rows say: tried, not measured."]
    )
    notes = [f"- {_brief(note)}" for note in results.notes]
    parts = ["\n".join(scaled), table(rows, results), figures(wanted, results), "\n".join(notes)]
    return "\n\n".join(part for part in parts if part)


def table(rows: Iterable[Row], results: Results) -> str:
    """Markdown; a row that falls short is marked, one that was not measured says why."""
    return "\n".join([_HEAD, *(_line(row, results) for row in rows)])


def figures(wanted: Iterable[Figure], results: Results) -> str:
    """Markdown: the medians of what a worker takes by itself; under each figure what else was measured with it."""
    figures = list(wanted)
    return "\n".join([_FIGURES_HEAD, *(line for figure in figures for line in _figure(figure, figures, results))])


def _brief(note: str) -> str:
    """What it is about, and how it ends: between them is where it went wrong, for results.json."""
    lines = note.strip().splitlines()
    return lines[0] if len(lines) == 1 else f"{lines[0]} {lines[-1].strip()}"


def _figure(figure: Figure, figures: Iterable[Figure], results: Results) -> Iterator[str]:
    yield from _limited(figure, figure.limits, results, at_least=False)
    yield from _limited(figure, figure.at_least, results, at_least=True)
    if not figure.same_as:
        named = {name for one in figures if one.source == figure.id for name in (*one.limits, *one.at_least)}
        for name in results.names(figure.id):
            if name not in named:
                found = results.values(figure.id, name)
                yield f"| {figure.what}: {name} | | | {statistics.median(found):,.2f} | {len(found)} |"


def _limited(
    figure: Figure, limits: Mapping[str, tuple[float, float]], results: Results, *, at_least: bool
) -> Iterator[str]:
    for name, (must, aim) in limits.items():
        found = results.values(figure.source, name)
        said = _said(statistics.median(found), must, at_least=at_least) if found else "not measured"
        yield f"| {figure.what}: {name} | {'≥' if at_least else '≤'} {must:g} | {aim:g} | {said} | {len(found)} |"


def _said(median: float, must: float, *, at_least: bool) -> str:
    enough = median >= must if at_least else median <= must
    return f"{median:.2f}{'' if enough else _SHORT}"


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
    mark = "" if found >= row.must else _SHORT
    rates = " | ".join(_rate(row, one.name, results) for one in (row.ours, row.other))
    return f"| {row.what} | {wanted} | {found:.2f} x{mark} | {len(results.of(row.id, row.ours.name))} | {rates} |"


def _rate(row: Row, program: str, results: Results) -> str:
    runs = results.of(row.id, program)
    seconds = results.seconds(row.id, program)
    peak = max(one.used.peak_pss or one.used.peak_rss for one in runs) / (1 << 30)
    return f"{program}: {runs[0].records / (seconds or 1) / 1e6:.3f} M/s, {peak:.1f} GiB"
