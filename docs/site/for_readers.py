"""A hook of mkdocs: what a reader of the repository has in other files, a reader of the site gets in the page.

Links whose text is the name of a page's file, as `[design.md](design.md)`, get the page's title. A part of a page
between the comments `of README.md: HEADING` and `end` is replaced by that section of README.md.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

LINK = re.compile(r"\[((?:[\w-]+/)*[\w-]+\.md|decisions/\d+)\]\(([\w/.-]+\.md)((?:#[\w-]+)?)\)")
OF_README = re.compile(r"<!-- of README\.md: (.+?) -->.*?<!-- end -->", re.DOTALL)


def titled(text: str, title: Callable[[str], str]) -> str:
    """Returns the Markdown `text` with each such link's text replaced by `title` of its target."""
    return LINK.sub(lambda link: f"[{title(link[2])}]({link[2]}{link[3]})", text)


def section(readme: str, heading: str) -> str:
    """Returns the text of `readme` below `heading`, with links as a page in docs/ has them."""
    text = readme[readme.index(f"\n## {heading}\n") :].split("\n", 2)[2]
    return text.partition("\n## ")[0].replace("](docs/", "](").strip()


def on_page_markdown(markdown: str, *, page: Any, **_others: object) -> str:
    """Replaces such parts and the texts of such links in a page, as mkdocs asks it to."""
    folder = Path(page.file.abs_src_path).parent
    if OF_README.search(markdown):
        readme = (folder.parent / "README.md").read_text(encoding="utf-8")
        markdown = OF_README.sub(lambda part: section(readme, part[1]), markdown)
    return titled(markdown, lambda target: heading(folder / target))


def heading(path: Path) -> str:
    """Returns the first heading of the page at `path`, up to a colon; its name if there is no such file."""
    if not path.is_file():
        return path.name
    first = re.search(r"(?m)^# (.+)$", path.read_text(encoding="utf-8"))
    return first[1].partition(": ")[0] if first else path.name
