"""Renders the results as one Markdown table: what was measured beside what it has to be, and what else was seen."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Mapping

from benchmarks.harness.results import Results
from benchmarks.harness.row import Comparison, Measurement

_HEAD = "| what | must | aim | measured | without the starts | each round | keyfold | the other |\n" + "|---" * 8 + "|"
_SHORT = " **short**"


def report(compared: Iterable[Comparison], measured: Iterable[Measurement], results: Results) -> str:
    """Renders the scale if it is not 1, the commit, the table, the values without a limit, and the notes."""
    scaled = (
        [] if results.scale == 1 else [f"{results.scale:g} times as many records as the rows say: tried, not measured."]
    )
    scaled.append(f"Measured at {results.code}.")
    every = list(measured)
    notes = [f"- {_first_and_last(note)}" for note in results.notes]
    parts = ["\n".join(scaled), table(compared, every, results), "\n".join(_others(every, results)), "\n".join(notes)]
    return "\n\n".join(part for part in parts if part)


def table(compared: Iterable[Comparison], measured: Iterable[Measurement], results: Results) -> str:
    """Renders a line for each comparison and each limited value, marked if it is short of what it has to be.

    What was not measured has the reason in place of a value; values are medians of the rounds, which are shown, too. At
    another scale than 1 nothing is short: what has to be reached counts for all records.
    """
    lines = [_comparison(row, results) for row in compared]
    lines.extend(line for row in measured for line in _measurement(row, results))
    return "\n".join([_HEAD, *lines])


def ratio(row: Comparison, results: Results, *, starts: bool = True) -> float | None:
    """Returns our records per second over the other's, by the whole run or without the starts; None if one is missing.

    Without the starts there is none either where a whole run was no longer than the start.
    """
    ours, other = (_seconds(row, one.name, results, starts=starts) for one in (row.ours, row.other))
    return None if not ours or not other or ours <= 0 or other <= 0 else other / ours


def _first_and_last(note: str) -> str:
    """Shortens a note with a trace to its first and last line; results.json has all of it."""
    lines = note.strip().splitlines()
    return lines[0] if len(lines) == 1 else f"{lines[0]} {lines[-1].strip()}"


def _others(every: Iterable[Measurement], results: Results) -> Iterator[str]:
    """Yields a line for each measurement whose rounds have values without a limit."""
    rows = list(every)
    for row in rows:
        limited = {name for one in rows if one.source == row.id for name in (*one.limits, *one.at_least)}
        names = [name for name in results.names(row.id) if name not in limited]
        if names and not row.same_as:
            yield f"- {row.id}: " + "; ".join(f"{name}: {_median(row, name, results):,.2f}" for name in names)


def _measurement(row: Measurement, results: Results) -> Iterator[str]:
    beside = [f"{name}: {_median(row, name, results):,.0f}" for name in row.beside if results.values(row.source, name)]
    what, cells = f"`{row.id}`: {row.what}", beside or ["", ""]
    for limits, at_least in ((row.limits, False), (row.at_least, True)):
        for line in _limited(row, limits, results, at_least=at_least):
            yield " | ".join([f"| {what}: {line}", *cells]) + " |"
            what, cells = "the same", ["", ""]


def _limited(
    row: Measurement, limits: Mapping[str, tuple[float, float]], results: Results, *, at_least: bool
) -> Iterator[str]:
    reason = results.missing.get(row.source, "not measured")
    for name, (must, aim) in limits.items():
        values = results.values(row.source, name)
        median = statistics.median(values) if values else None
        is_enough = median is None or (median >= must if at_least else median <= must)
        shown = reason if median is None else f"{median:.2f}{_mark(results, is_enough=is_enough)}"
        least = f"{'≥' if at_least else '≤'} {must:g}" if must else "shown"
        yield f"{name} | {least} | {aim:g} | {shown} |  | {_rounds(values)}"


def _median(row: Measurement, name: str, results: Results) -> float:
    return statistics.median(results.values(row.source, name))


def _mark(results: Results, *, is_enough: bool) -> str:
    return "" if is_enough or results.scale != 1 else _SHORT


def _rounds(values: Iterable[float]) -> str:
    """Renders a value for each round, in their order: alone they say how far a median can be trusted."""
    return ", ".join(f"{value:.2f}" for value in values)


def _ratios(row: Comparison, results: Results) -> list[float]:
    """Returns the ratio of each round in which both programs ran, by whole runs."""
    ours, other = (
        {run.round: run.used.seconds for run in results.of(row.id, one.name)} for one in (row.ours, row.other)
    )
    return [other[number] / ours[number] for number in sorted(ours.keys() & other.keys()) if ours[number] > 0]


def _seconds(row: Comparison, program: str, results: Results, *, starts: bool) -> float | None:
    whole = results.seconds(row.id, program)
    return whole if whole is None or starts else whole - results.start(row.id, program)


def _comparison(row: Comparison, results: Results) -> str:
    wanted = f"≥ {row.must:g} x | {row.aim:g} x"
    whole = ratio(row, results)
    if whole is None:
        missing = [results.missing[one.name] for one in (row.ours, row.other) if one.name in results.missing]
        return f"| `{row.id}`: {row.what} | {wanted} | {'; '.join(missing) or 'not measured'} |  |  |  |  |"
    mark = _mark(results, is_enough=whole >= row.must)
    rest = ratio(row, results, starts=False)
    beside = "" if rest is None else f"{rest:.2f} x"
    rates = " | ".join(_rate(row, one.name, results) for one in (row.ours, row.other))
    rounds = _rounds(_ratios(row, results))
    return f"| `{row.id}`: {row.what} | {wanted} | {whole:.2f} x{mark} | {beside} | {rounds} | {rates} |"


def _rate(row: Comparison, program: str, results: Results) -> str:
    runs = results.of(row.id, program)
    seconds, start = results.seconds(row.id, program) or 1.0, results.start(row.id, program)
    peak = max(one.used.peak_pss or one.used.peak_rss for one in runs) / (1 << 30)
    rate = f"{runs[0].records / seconds / 1e6:.3f} M/s"
    memory = f", {peak:.1f} GiB" if peak else ""  # of a reader it is not measured
    cpu = statistics.median(one.used.cpu_seconds for one in runs)
    return f"{program}: {rate}, {seconds:.1f} s of which the start {start:.1f} s, processor time {cpu:.1f} s{memory}"
