"""Makes the tables of settings in docs/converters.md and docs/transforms.md from the classes.

`python -m connectors.chain.reference docs/converters.md docs/transforms.md` rewrites them between their marks
(`<!-- settings: CLASS -->` and `<!-- end -->`); what all classes with a schema registry have stands once, between the
mark `registry`. A test fails while a page says something else than the classes.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from connectors.class_names import ClassNames
from connectors.converters.names import CONVERTERS, HEADER_CONVERTERS
from connectors.converters.registered import REGISTERED
from connectors.options import REQUIRED, Option
from connectors.transforms.names import PREDICATES, TRANSFORMS

KINDS: Final[tuple[ClassNames, ...]] = (CONVERTERS, HEADER_CONVERTERS, TRANSFORMS, PREDICATES)
_BLOCK: Final = re.compile(r"(<!-- settings: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def page(text: str) -> str:
    """Rewrites every table of `text` between its marks. Raises StopIteration for a mark of no class."""
    return _BLOCK.sub(lambda block: f"{block[1]}\n{_table(_options(block[2]))}\n\n{block[3]}", text)


def _options(simple: str) -> Iterable[Option]:
    if simple == "registry":
        return REGISTERED
    class_name = next(candidate for names in KINDS for candidate in names.known if candidate.simple == simple)
    options: tuple[Option, ...] = class_name.load().OPTIONS
    return options[len(REGISTERED) :] if options[: len(REGISTERED)] == REGISTERED else options


def _table(options: Iterable[Option]) -> str:
    heads = ("setting", "default", "allowed", "meaning")
    lines = [heads, ("---",) * len(heads), *map(_cells, options)]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def _cells(option: Option) -> tuple[str, ...]:
    return f"`{option.name}`", _default(option), f"{option.kind}: {option.valid_values}", option.doc


def _default(option: Option) -> str:
    if option.default is REQUIRED:
        return "**required**"
    if option.default in (None, [], ""):
        return "none"
    return f"`{str(option.default).lower() if isinstance(option.default, bool) else option.default}`"


def main() -> None:
    """Rewrites the tables of the pages that are named on the command line."""
    for name in sys.argv[1:]:
        path = Path(name)
        path.write_text(page(path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
