"""The tables of docs/configuration.md, made from the table of keys.

`python -m connectors.config.reference docs/configuration.md` writes them anew between their marks; a test fails
while the page says something else than the keys.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping
from itertools import groupby
from pathlib import Path
from typing import Final

from connectors.config.key import Key, Prefix
from connectors.config.keys import CONNECTOR_KEYS, CONNECTOR_PREFIXES, WORKER_KEYS, WORKER_PREFIXES
from connectors.config.refused import REFUSED
from connectors.config.release import CONNECT_LATER, LATER
from connectors.config.translate import JAVA

_BLOCK: Final = re.compile(r"(<!-- table: ([a-z-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def page(text: str) -> str:
    """`text` with every table between its marks made anew. Raises KeyError for a mark of an unknown table."""
    tables = _tables()
    return _BLOCK.sub(lambda found: f"{found[1]}\n{tables[found[2]]}\n\n{found[3]}", text)


def _tables() -> dict[str, str]:
    return {
        "connector": _grouped(CONNECTOR_KEYS.values()),
        "connector-families": _families(CONNECTOR_PREFIXES),
        "worker": _grouped(WORKER_KEYS.values()),
        "worker-families": _families(WORKER_PREFIXES),
        "later": _pairs(("key", "comes with"), {**LATER, **CONNECT_LATER}),
        "java": _pairs(("Java's name", "librdkafka's name"), {name: f"`{to}`" for name, to in JAVA.items()}),
        "refused": _pairs(("setting", "why"), REFUSED),
    }


def _grouped(keys: Iterable[Key]) -> str:
    return "\n\n".join(f"### {title}\n\n{_keys(tuple(members))}" for title, members in groupby(keys, lambda k: k.group))


def _keys(keys: Iterable[Key]) -> str:
    return _table(("key", "default", "allowed", "meaning"), (_cells(key) for key in keys))


def _cells(key: Key) -> tuple[str, ...]:
    default = "**required**" if key.required else "none" if key.default is None else f"`{key.default}`"
    allowed = key.kind.allowed + (f" ({key.unit})" if key.unit else "")
    later = " *Not available yet: only its default is taken.*" if key.name in LATER else ""
    return f"`{key.name}`", default, f"{key.kind.type}: {allowed}", key.doc + later


def _families(prefixes: Iterable[Prefix]) -> str:
    return _table(("keys", "meaning"), ((f"`{prefix.name}*`", prefix.doc) for prefix in prefixes))


def _pairs(heads: tuple[str, str], rows: Mapping[str, str]) -> str:
    return _table(heads, ((f"`{name}`", text) for name, text in rows.items()))


def _table(heads: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [heads, ("---",) * len(heads), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def main() -> None:
    """Writes the tables of the page that is named on the command line anew."""
    path = Path(sys.argv[1])
    path.write_text(page(path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
