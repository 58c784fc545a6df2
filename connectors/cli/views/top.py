"""Makes the rows of `keyfold top` of what a worker has answered, in an order, in a width. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from msgspec import Struct

from connectors.progress.terminal import columns_of, cut, table
from connectors.terminal_text import one_line

READ: Final = "keyfold_records_read_total"
PUBLISHED: Final = "keyfold_records_published_total"
FOLDS: Final = "keyfold_log_cleaner_compactions_total"
DEAD_LETTERS: Final = "keyfold_dead_letters_total"
AGES: Final = "keyfold_publish_freshness_seconds_sum"
AGED: Final = "keyfold_publish_freshness_seconds_count"
LAG_RECORDS: Final = ("keyfold_source_lag_records", "keyfold_publish_lag_records")
LAG_SECONDS: Final = ("keyfold_source_lag_seconds", "keyfold_publish_lag_seconds")
NAMES: Final = frozenset((READ, PUBLISHED, FOLDS, DEAD_LETTERS, AGES, AGED, *LAG_RECORDS, *LAG_SECONDS))
"""The series of /metrics that are read."""
_WORST_FIRST: Final = ("FAILED", "RESTARTING", "UNASSIGNED", "RUNNING", "PAUSED", "STOPPED")
_HEADERS: Final = ("CONNECTOR", "STATE", "LAG", "LAG S", "FRESH S", "READ/S", "SENT/S", "FOLDS", "DEAD")
_FALL_AWAY: Final = ("FOLDS", "FRESH S", "DEAD", "SENT/S", "READ/S", "LAG S")
"""The columns that a narrow terminal does without, the first of them first."""
_SHORTEST_NAME: Final = 12
"""Characters: a name is cut to so many before a column falls away, as more of it seldom tells two apart."""


class TopState(Struct, frozen=True):
    """A connector's state, and what it has FAILED with."""

    state: str
    error: str | None = None


class TopSample(Struct, frozen=True):
    """What a worker said at a time (ms that never fall): states by connector, values by metric and connector."""

    at_ms: int
    states: Mapping[str, TopState]
    values: Mapping[tuple[str, str], float]


class TopRow(Struct, frozen=True, kw_only=True):
    """A connector; None for what is not known: a rate needs two samples, a freshness something published."""

    connector: str
    state: str
    lag_records: int | None
    lag_seconds: float | None
    freshness_seconds: float | None
    read_per_second: float | None
    published_per_second: float | None
    folds: int | None
    dead_letters: int | None
    error: str | None


def values_of(series: Iterable[tuple[str, str, float]]) -> dict[tuple[str, str], float]:
    """Returns one value for each metric and connector: its topics' greatest delay, of other metrics their sum."""
    values: dict[tuple[str, str], float] = {}
    for metric, connector, value in series:
        at = metric, connector
        if at not in values:
            values[at] = value
        else:
            values[at] = max(values[at], value) if metric in LAG_SECONDS else values[at] + value
    return values


def rows(before: TopSample | None, now: TopSample) -> list[TopRow]:
    """Returns a row for each connector of `now`; rates are since `before`."""
    return [_row(name, before, now) for name in now.states]


def _row(name: str, before: TopSample | None, now: TopSample) -> TopRow:
    state = now.states[name]

    def known(metrics: Iterable[str]) -> list[float]:
        return [now.values[metric, name] for metric in metrics if (metric, name) in now.values]

    lag, folds, dead = known(LAG_RECORDS), known((FOLDS,)), known((DEAD_LETTERS,))
    return TopRow(
        connector=name,
        state=state.state,
        lag_records=int(sum(lag)) if lag else None,
        lag_seconds=max(known(LAG_SECONDS), default=None),
        freshness_seconds=_freshness(name, before, now),
        read_per_second=_rate(READ, name, before, now),
        published_per_second=_rate(PUBLISHED, name, before, now),
        folds=int(folds[0]) if folds else None,
        dead_letters=int(dead[0]) if dead else None,
        error=first_line(state.error),
    )


def first_line(text: str | None) -> str | None:
    """Returns the first line of `text`; None for none."""
    return next(iter((text or "").strip().splitlines()), None)


def _gain(metric: str, name: str, before: TopSample | None, now: TopSample) -> float | None:
    """Returns by how much a counter has grown; one that went back was begun again at 0 by a restart."""
    value = now.values.get((metric, name))
    earlier = None if before is None else before.values.get((metric, name))
    if value is None or earlier is None:
        return None
    return value if value < earlier else value - earlier


def _rate(metric: str, name: str, before: TopSample | None, now: TopSample) -> float | None:
    gain = _gain(metric, name, before, now)
    if gain is None or before is None or now.at_ms <= before.at_ms:
        return None
    return gain * 1000 / (now.at_ms - before.at_ms)


def _freshness(name: str, before: TopSample | None, now: TopSample) -> float | None:
    """Returns the mean age of what was published since `before`, else since the connector was started."""
    count, seconds = (_gain(metric, name, before, now) for metric in (AGED, AGES))
    if not count or seconds is None:
        count, seconds = (now.values.get((metric, name)) for metric in (AGED, AGES))
    return seconds / count if count and seconds is not None else None


def _greatest(value: Callable[[TopRow], float | None]) -> Callable[[TopRow], tuple[float, str]]:
    return lambda row: (-(value(row) or 0.0), row.connector)


ORDERS: Final[Mapping[str, Callable[[TopRow], tuple[float, str]]]] = {
    "state": lambda row: (_WORST_FIRST.index(row.state) if row.state in _WORST_FIRST else 0, row.connector),
    "lag": _greatest(lambda row: row.lag_records),
    "freshness": _greatest(lambda row: row.freshness_seconds),
    "read": _greatest(lambda row: row.read_per_second),
    "published": _greatest(lambda row: row.published_per_second),
    "dead": _greatest(lambda row: row.dead_letters),
    "name": lambda row: (0, row.connector),
}
"""How rows can be sorted; the first letter of each is its key on the terminal."""
KEYS: Final = {name[0]: name for name in ORDERS}


def text(shown: Sequence[TopRow], width: int | None = None) -> str:
    """Returns a table, then the error of each connector that has one; no line wider than `width`, if there is one."""
    errors = error_lines(shown, width)
    return "\n".join([*table_lines(shown, width), *([""] if errors else []), *errors])


def error_lines(shown: Iterable[TopRow], width: int | None = None) -> list[str]:
    """Returns a line for each connector that has an error, of at most `width` columns."""
    return [cut(f"{one_line(row.connector)}: {one_line(row.error)}", width) for row in shown if row.error]


def table_lines(shown: Sequence[TopRow], width: int | None = None) -> list[str]:
    """Returns the headers and a line for each row, of at most `width` columns: some fall away, and names are cut."""
    hidden = 0
    while True:
        headers = [name for name in _HEADERS if name not in _FALL_AWAY[:hidden]]
        lines = [_cells(row, headers, None) for row in shown]
        spare = 0 if width is None else width - _width(headers, lines)
        longest = max((columns_of(line[0]) for line in lines), default=0)
        least = max(min(longest, _SHORTEST_NAME), len(_HEADERS[0]))
        if spare >= 0 or longest + spare >= least or hidden == len(_FALL_AWAY):
            break
        hidden += 1
    name_width = None if spare >= 0 else max(longest + spare, least)
    return table(headers, [_cells(row, headers, name_width) for row in shown]).split("\n")


def _width(headers: Sequence[str], lines: Sequence[Sequence[str]]) -> int:
    widths = (max(len(name), *(columns_of(line[at]) for line in lines), 0) for at, name in enumerate(headers))
    return sum(widths) + 2 * (len(headers) - 1)


def _cells(row: TopRow, headers: Sequence[str], name_width: int | None) -> list[str]:
    values = (
        cut(one_line(row.connector), name_width),
        one_line(row.state),
        _count(row.lag_records),
        _number(row.lag_seconds),
        _number(row.freshness_seconds),
        _number(row.read_per_second),
        _number(row.published_per_second),
        _count(row.folds),
        _count(row.dead_letters),
    )
    return [value for name, value in zip(_HEADERS, values, strict=True) if name in headers]


def _count(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.1f}"
