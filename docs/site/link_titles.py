"""A hook of mkdocs: a link whose text is the name of a page's file gets the page's title in the site.

The sources say `[design.md](design.md)`, which a reader of the repository wants; a reader of the site has no files.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

LINK = re.compile(r"\[((?:[\w-]+/)*[\w-]+\.md|decisions/\d+)\]\(([\w/.-]+\.md)((?:#[\w-]+)?)\)")


def titled(text: str, title: Callable[[str], str]) -> str:
    """Returns the Markdown `text` with each such link's text replaced by `title` of its target."""
    return LINK.sub(lambda link: f"[{title(link[2])}]({link[2]}{link[3]})", text)


def on_page_markdown(markdown: str, *, page: Any, **_others: object) -> str:
    """Replaces the texts of such links in a page, as mkdocs asks it to."""
    folder = Path(page.file.abs_src_path).parent
    return titled(markdown, lambda target: heading(folder / target))


def heading(path: Path) -> str:
    """Returns the first heading of the page at `path`, up to a colon; its name if there is no such file."""
    if not path.is_file():
        return path.name
    first = re.search(r"(?m)^# (.+)$", path.read_text(encoding="utf-8"))
    return first[1].partition(": ")[0] if first else path.name
