"""Makes the tables of docs/configuration.md from the fields of the models.

`python -m connectors.config.reference docs/configuration.md` rewrites them between their marks; a test fails
while the page says something else than the models.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping
from itertools import groupby
from pathlib import Path
from typing import Final

from pydantic import BaseModel

from connectors.config.client_names import REFUSED
from connectors.config.client_translate import JAVA
from connectors.config.connector import ConnectorConfig
from connectors.config.definitions import FIRST_RELEASE, Definition, definitions, documentation, families
from connectors.config.errors import CONNECT_LATER
from connectors.config.worker import WorkerConfig

_BLOCK: Final = re.compile(r"(<!-- table: ([a-z-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def page(text: str) -> str:
    """Rewrites every table of `text` between its marks. Raises KeyError for a mark of an unknown table."""
    tables = _tables()
    return _BLOCK.sub(lambda block: f"{block[1]}\n{tables[block[2]]}\n\n{block[3]}", text)


def _tables() -> dict[str, str]:
    return {
        "connector": _grouped(ConnectorConfig),
        "connector-families": _families(ConnectorConfig),
        "worker": _grouped(WorkerConfig),
        "worker-families": _families(WorkerConfig),
        "later": _pairs(("key", "comes with"), CONNECT_LATER),
        "java": _pairs(("Java's name", "librdkafka's name"), {name: f"`{to}`" for name, to in JAVA.items()}),
        "refused": _pairs(("setting", "why"), REFUSED),
    }


def _grouped(model: type[BaseModel]) -> str:
    groups = groupby(definitions(model).values(), lambda key: key.group)
    return "\n\n".join(f"### {title}\n\n{_keys(members, documentation(model))}" for title, members in groups)


def _keys(keys: Iterable[Definition], docs: Mapping[str, str]) -> str:
    heads = ("key", "default", "allowed", "importance", "meaning")
    return _table(heads, (_cells(key, docs[key.field]) for key in keys))


def _cells(key: Definition, doc: str) -> tuple[str, ...]:
    default = "**required**" if key.required else "none" if key.default is None else f"`{key.default}`"
    allowed = key.valid_values + (f" ({key.unit})" if key.unit else "")
    since = "" if key.since == FIRST_RELEASE else f" *Since {key.since}.*"
    return f"`{key.name}`", default, f"{key.type}: {allowed}", key.importance, doc + since


def _families(model: type[BaseModel]) -> str:
    docs = documentation(model)
    return _table(("keys", "meaning"), ((f"`{each.name}*`", docs[each.field]) for each in families(model).values()))


def _pairs(heads: tuple[str, str], rows: Mapping[str, str]) -> str:
    return _table(heads, ((f"`{name}`", text) for name, text in rows.items()))


def _table(heads: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [heads, ("---",) * len(heads), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def main() -> None:
    """Rewrites the tables of the page that is named on the command line."""
    path = Path(sys.argv[1])
    path.write_text(page(path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
