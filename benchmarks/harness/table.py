"""Renders the results as Markdown tables: what was measured beside what it has to be."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Mapping

from benchmarks.harness.results import Results
from benchmarks.harness.row import Comparison, Measurement

_MEASUREMENTS_HEAD = "| what | must | aim | measured | runs |\n|---|---|---|---|---|"
_COMPARISONS_HEAD = (
    "| what | must | aim | whole run | without the starts | runs | keyfold | other |\n|---|---|---|---|---|---|---|---|"
)
_SHORT = " **short**"


def report(compared: Iterable[Comparison], measured: Iterable[Measurement], results: Results) -> str:
    """Renders both tables, the scale if it is not 1, the commit, and the notes."""
    scaled = (
        [] if results.scale == 1 else [f"{results.scale:g} times as many records as the rows say: tried, not measured."]
    )
    scaled.append(f"Measured at {results.code}.")
    notes = [f"- {_first_and_last(note)}" for note in results.notes]
    parts = ["\n".join(scaled), comparisons(compared, results), measurements(measured, results), "\n".join(notes)]
    return "\n\n".join(part for part in parts if part)


def comparisons(rows: Iterable[Comparison], results: Results) -> str:
    """Renders a line for each comparison: marked if it is short of what it has to be, with a reason if not measured."""
    return "\n".join([_COMPARISONS_HEAD, *(_line(row, results) for row in rows)])


def measurements(rows: Iterable[Measurement], results: Results) -> str:
    """Renders the medians of each measurement: first the values with a limit, then the others of its rounds."""
    every = list(rows)
    return "\n".join([_MEASUREMENTS_HEAD, *(line for row in every for line in _measurement(row, every, results))])


def _first_and_last(note: str) -> str:
    """Shortens a note with a trace to its first and last line; results.json has all of it."""
    lines = note.strip().splitlines()
    return lines[0] if len(lines) == 1 else f"{lines[0]} {lines[-1].strip()}"


def _measurement(row: Measurement, every: Iterable[Measurement], results: Results) -> Iterator[str]:
    yield from _limited(row, row.limits, results, at_least=False)
    yield from _limited(row, row.at_least, results, at_least=True)
    if not row.same_as:
        limited = {name for one in every if one.source == row.id for name in (*one.limits, *one.at_least)}
        for name in results.names(row.id):
            if name not in limited:
                found = results.values(row.id, name)
                yield f"| {row.what}: {name} | | | {statistics.median(found):,.2f} | {len(found)} |"


def _limited(
    row: Measurement, limits: Mapping[str, tuple[float, float]], results: Results, *, at_least: bool
) -> Iterator[str]:
    reason = results.missing.get(row.source, "not measured")
    for name, (must, aim) in limits.items():
        found = results.values(row.source, name)
        median = _marked(statistics.median(found), must, at_least=at_least) if found else reason
        yield f"| {row.what}: {name} | {'≥' if at_least else '≤'} {must:g} | {aim:g} | {median} | {len(found)} |"


def _marked(median: float, must: float, *, at_least: bool) -> str:
    enough = median >= must if at_least else median <= must
    return f"{median:.2f}{'' if enough else _SHORT}"


def ratio(row: Comparison, results: Results, *, starts: bool = True) -> float | None:
    """Returns our records per second over the other's, by the whole run or without the starts; None if one is missing.

    Without the starts there is none either where a whole run was no longer than the start.
    """
    ours, other = (_seconds(row, one.name, results, starts=starts) for one in (row.ours, row.other))
    return None if not ours or not other or ours <= 0 or other <= 0 else other / ours


def _seconds(row: Comparison, program: str, results: Results, *, starts: bool) -> float | None:
    whole = results.seconds(row.id, program)
    return whole if whole is None or starts else whole - results.start(row.id, program)


def _line(row: Comparison, results: Results) -> str:
    wanted = f"≥ {row.must:g} x | {row.aim:g} x"
    found = ratio(row, results)
    if found is None:
        missing = [results.missing[one.name] for one in (row.ours, row.other) if one.name in results.missing]
        return f"| {row.what} | {wanted} | {'; '.join(missing) or 'not measured'} | | | | |"
    mark = "" if found >= row.must else _SHORT
    rest = ratio(row, results, starts=False)
    beside = "" if rest is None else f"{rest:.2f} x"
    rates = " | ".join(_rate(row, one.name, results) for one in (row.ours, row.other))
    runs = len(results.of(row.id, row.ours.name))
    return f"| {row.what} | {wanted} | {found:.2f} x{mark} | {beside} | {runs} | {rates} |"


def _rate(row: Comparison, program: str, results: Results) -> str:
    runs = results.of(row.id, program)
    seconds, start = results.seconds(row.id, program) or 1.0, results.start(row.id, program)
    peak = max(one.used.peak_pss or one.used.peak_rss for one in runs) / (1 << 30)
    rate = f"{runs[0].records / seconds / 1e6:.3f} M/s"
    memory = f", {peak:.1f} GiB" if peak else ""  # of a reader it is not measured
    return f"{program}: {rate}, {seconds:.1f} s of which the start {start:.1f} s{memory}"
