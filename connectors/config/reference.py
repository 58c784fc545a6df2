"""Makes the tables of settings in docs/configuration.md, docs/converters.md and docs/transforms.md.

`python -m connectors.config.reference PAGE…` rewrites those between the marks `<!-- table: NAME -->` (of the models) or
`<!-- settings: CLASS -->` (of a converter, transform or predicate) and `<!-- end -->`. What all classes with a schema
registry have stands once, at the mark `registry`. A test fails while a page and the declarations differ.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import groupby
from pathlib import Path
from textwrap import TextWrapper
from typing import Final, TypeAlias

from pydantic import BaseModel

from connectors.config.clients.client_names import REFUSED
from connectors.config.clients.client_translate import JAVA
from connectors.config.connector import ConnectorConfig
from connectors.config.definitions import FIRST_RELEASE, Definition, definitions, families, paragraphs
from connectors.config.errors import CONNECT_LATER
from connectors.config.worker import WorkerConfig
from connectors.converters.names import CONVERTERS, HEADER_CONVERTERS
from connectors.converters.registered import REGISTERED
from connectors.options import REQUIRED, Option
from connectors.transforms.names import PREDICATES, TRANSFORMS

Paragraphs: TypeAlias = tuple[str, ...]

_LIST: Final = TextWrapper(
    118, initial_indent="- ", subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
)
"""An item of a list in at most 118 columns, as the pages are wrapped."""
_BLOCK: Final = re.compile(r"(<!-- (table|settings): ([\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def page(text: str) -> str:
    """Rewrites every table of `text` between its marks. Raises KeyError for a mark of no table or class."""

    def block(match: re.Match[str]) -> str:
        table = _TABLES[match[3]]() if match[2] == "table" else _options(match[3])
        return f"{match[1]}\n{table}\n\n{match[4]}"

    return _BLOCK.sub(block, text)


def _options(simple: str) -> str:
    """Makes the table of the class with this simple name; those of any registry are in the table `registry` alone."""
    kinds = (CONVERTERS, HEADER_CONVERTERS, TRANSFORMS, PREDICATES)
    classes = {class_name.simple: class_name for kind in reversed(kinds) for class_name in reversed(kind.known)}
    options: tuple[Option, ...] = REGISTERED if simple == "registry" else classes[simple].load().OPTIONS
    if simple != "registry" and options[: len(REGISTERED)] == REGISTERED:
        options = options[len(REGISTERED) :]
    rows = (
        (f"`{option.name}`", _default(option), f"{option.kind}: {option.valid_values}", option.doc)
        for option in options
    )
    return _table(("setting", "default", "allowed", "meaning"), rows)


def _default(option: Option) -> str:
    if option.default is REQUIRED:
        return "**required**"
    if option.default in (None, [], ""):
        return "none"
    return f"`{str(option.default).lower() if isinstance(option.default, bool) else option.default}`"


def _grouped(model: type[BaseModel]) -> str:
    groups = groupby(definitions(model).values(), lambda key: key.group)
    return "\n\n".join(f"### {title}\n\n{_keys(list(keys), paragraphs(model))}" for title, keys in groups)


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


_TABLES: Final[Mapping[str, Callable[[], str]]] = {
    "connector": partial(_grouped, ConnectorConfig),
    "connector-families": partial(_families, ConnectorConfig),
    "worker": partial(_grouped, WorkerConfig),
    "worker-families": partial(_families, WorkerConfig),
    "later": partial(_pairs, ("key", "comes with"), CONNECT_LATER),
    "java": partial(_pairs, ("Java's name", "librdkafka's name"), {name: f"`{to}`" for name, to in JAVA.items()}),
    "refused": partial(_pairs, ("setting", "why"), REFUSED),
}


def main() -> None:
    """Rewrites the tables of the pages that are named on the command line."""
    for name in sys.argv[1:]:
        path = Path(name)
        path.write_text(page(path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
