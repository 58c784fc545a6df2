"""The table of results, as text."""

from __future__ import annotations

from collections.abc import Iterable

from tests.support.cdc.story import Result


def write_report(results: Iterable[Result]) -> str:
    """Returns a line for each table and encoding, with what differs below it."""
    lines: list[str] = []
    by_pair: dict[tuple[str, str], dict[str, Result]] = {}
    for result in results:
        by_pair.setdefault((result.table, result.encoding), {})[result.place] = result
    for (table, encoding), places in by_pair.items():
        texts = {place: str(result.difference) for place, result in places.items()}
        rows = next(iter(places.values())).rows
        is_same = len(set(texts.values())) == 1
        told = (
            [f"{', '.join(texts)}: {text}" for text in dict.fromkeys(texts.values())]
            if is_same
            else [f"{place}: {text}" for place, text in texts.items()]
        )
        lines += [f"{table:<16} {encoding:<6} {rows:>7} rows  {text}" for text in told]
    equal = sum(result.difference.is_equal for pair in by_pair.values() for result in pair.values())
    lines.append(f"{equal} of {sum(map(len, by_pair.values()))} are equal")
    return "\n".join(lines)
