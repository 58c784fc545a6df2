"""Makes the tables of docs/configuration.md from the fields of the models.

`python -m connectors.config.reference docs/configuration.md` writes them between their marks. A test fails
while the page and the models differ.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from textwrap import TextWrapper
from typing import Final, TypeAlias

from pydantic import BaseModel

from connectors.config.client_names import REFUSED
from connectors.config.client_translate import JAVA
from connectors.config.connector import ConnectorConfig
from connectors.config.definitions import FIRST_RELEASE, Definition, definitions, families, paragraphs
from connectors.config.errors import CONNECT_LATER
from connectors.config.worker import WorkerConfig

Paragraphs: TypeAlias = tuple[str, ...]

_LIST: Final = TextWrapper(
    118, initial_indent="- ", subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
)
"""An item of a list in at most 118 columns, as the pages are wrapped."""
_BLOCK: Final = re.compile(r"(<!-- table: ([a-z-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def page(text: str) -> str:
    """Returns `text` with every table between marks as the models have it now.

    Raises KeyError for a mark of an unknown table.
    """
    tables = _tables()
    return _BLOCK.sub(lambda found: f"{found[1]}\n{tables[found[2]]}\n\n{found[3]}", text)


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
    return "\n\n".join(f"### {title}\n\n{_keys(list(members), paragraphs(model))}" for title, members in groups)


def _keys(keys: Sequence[Definition], docs: Mapping[str, Paragraphs]) -> str:
    heads = ("key", "default", "allowed", "importance", "meaning")
    rows = _table(heads, (_cells(key, docs[key.field][0]) for key in keys))
    return rows + _details((f"`{key.name}`", docs[key.field]) for key in keys)


def _cells(key: Definition, doc: str) -> tuple[str, ...]:
    default = "**required**" if key.required else "none" if key.default is None else f"`{key.default}`"
    allowed = key.valid_values + (f" ({key.unit})" if key.unit else "")
    since = "" if key.since == FIRST_RELEASE else f" *Since {key.since}.*"
    return f"`{key.name}`", default, f"{key.type}: {allowed}", key.importance, doc + since


def _families(model: type[BaseModel]) -> str:
    docs = [(f"`{each.name}*`", paragraphs(model)[each.field]) for each in families(model).values()]
    return _table(("keys", "meaning"), ((name, doc[0]) for name, doc in docs)) + _details(docs)


def _details(docs: Iterable[tuple[str, Paragraphs]]) -> str:
    """Returns a list of what the paragraphs after the first say of each key; a table's cell has room for that one."""
    items = (f"{name}: {' '.join(doc[1:])}" for name, doc in docs if doc[1:])
    return "".join(f"\n{_LIST.fill(item)}" for item in items).replace("\n", "\n\n", 1)


def _pairs(heads: tuple[str, str], rows: Mapping[str, str]) -> str:
    return _table(heads, ((f"`{name}`", text) for name, text in rows.items()))


def _table(heads: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [heads, ("---",) * len(heads), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def main() -> None:
    """Updates the tables of the page that is named on the command line."""
    path = Path(sys.argv[1])
    path.write_text(page(path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
