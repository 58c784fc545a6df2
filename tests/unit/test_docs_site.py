"""The documentation as a site: every page is in the menu, and every link, anchor and picture resolves."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from tests.unit.test_structure import ROOT

DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
READ_APART = tuple(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md"))
"""Pages of the repository that are not part of the site."""

BLOCK = re.compile(r"^\s*```.*?^\s*```$|^(?: {4}|\t).*?$", re.DOTALL | re.MULTILINE)
CODE = re.compile(r"`[^`\n]*`")
LINK = re.compile(r"\]\(([^)\s]+)\)|(?:src|srcset|href)=\"([^\"]+)\"")
HEADING = re.compile(r"^#{1,6} (.*)$", re.MULTILINE)
QUOTED = re.compile(r"docs/[\w/.-]+\.md(?:#[\w-]+)?")
"""A page of the documentation as messages, dashboards and manifests name it."""


def links(page: str) -> list[str]:
    """Returns the targets of the links and pictures of `page`, without those in code and those to other sites."""
    text = CODE.sub("", BLOCK.sub("", page))
    targets = (first or second for first, second in LINK.findall(text))
    return [target for target in targets if not re.match(r"[a-z]+:", target)]


def anchors(page: str) -> set[str]:
    """Returns the anchors of the headings of `page`, as GitHub and the site make them."""
    titles = HEADING.findall(re.sub(r"^```.*?^```$", "", page, flags=re.DOTALL | re.MULTILINE))
    plain = (re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title) for title in titles)
    return {re.sub(r"[^\w\- ]", "", title.strip().lower()).replace(" ", "-") for title in plain}


def broken(path: Path, target: str) -> bool:
    """Returns whether `target`, a link in the file `path`, leads to no file or to no heading of it."""
    name, _, anchor = target.partition("#")
    file = Path(os.path.normpath(path.parent / name)) if name else path
    return not file.exists() or (anchor != "" and anchor not in _anchors(file))


@cache
def _anchors(path: Path) -> set[str]:
    return anchors(path.read_text(encoding="utf-8"))


def _menu() -> list[str]:
    """Returns the pages that mkdocs.yml has in its menu, in their order."""
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    return re.findall(r"(?m)^ +- (?:[^#\n]*: )?(\S+\.md)$", text[text.index("\nnav:") :])


def test_every_page_is_in_the_menu_once() -> None:
    """No page is an orphan, and none of the menu is missing."""
    assert sorted(_menu()) == [str(path.relative_to(DOCS)) for path in PAGES]


@pytest.mark.parametrize("path", [*PAGES, *READ_APART], ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_of_a_page_resolves(path: Path) -> None:
    """Files, headings and pictures are there; a page of the site leads nowhere outside of it."""
    targets = links(path.read_text(encoding="utf-8"))
    assert [target for target in targets if broken(path, target)] == []
    if path in PAGES:
        outside = [target for target in targets if not _is_in_site(path, target)]
        assert outside == [], "name files outside docs/ in backticks: the site does not have them"


def _is_in_site(path: Path, target: str) -> bool:
    return Path(os.path.normpath(path.parent / target.partition("#")[0])).is_relative_to(DOCS)


def _sources() -> Iterator[Path]:
    for folder in ("compactor", "connectors", "docker", "configs"):
        yield from (path for path in (ROOT / folder).rglob("*") if path.suffix in {".py", ".json", ".yaml", ".yml"})


def test_every_page_that_the_product_names_is_there() -> None:
    """Errors, dashboards and manifests send their readers to pages and headings that exist."""
    named = {(path, quoted) for path in _sources() for quoted in QUOTED.findall(path.read_text(encoding="utf-8"))}
    assert len(named) > 10
    assert sorted(quoted for _, quoted in named if broken(ROOT / "here", quoted)) == []


def test_every_picture_is_shown() -> None:
    """A picture that no page shows is taken away."""
    shown = {
        Path(os.path.normpath(path.parent / target.partition("#")[0]))
        for path in (*PAGES, *READ_APART)
        for target in links(path.read_text(encoding="utf-8"))
    }
    pictures = {path for path in DOCS.rglob("*") if path.suffix in {".png", ".svg"}}
    assert sorted(pictures - shown) == []


@pytest.mark.parametrize("path", sorted(DOCS.rglob("*.svg")), ids=lambda path: path.name)
def test_a_drawing_is_for_everyone(path: Path) -> None:
    """It says what it shows in words, has colours for light and dark, and loads nothing."""
    drawing = ET.parse(path).getroot()
    texts = {each.tag.rpartition("}")[2]: (each.text or "").strip() for each in drawing}
    assert texts["title"]
    assert texts["desc"]
    assert "prefers-color-scheme: dark" in texts["style"]
    assert not {"script", "image", "use"} & {each.tag.rpartition("}")[2] for each in drawing.iter()}


def test_each_stage_has_one_drawing() -> None:
    """docs/stages.md shows a drawing below each heading."""
    parts = (DOCS / "stages.md").read_text(encoding="utf-8").split("\n## ")
    assert len(parts) == 7
    assert [len(re.findall(r"!\[[^\]]+\]\(drawings/\w+\.svg\)", part)) for part in parts] == [1] * len(parts)


@pytest.mark.parametrize(
    ("page", "targets"),
    [
        ("[a](b.md) [c\nd](#e)", ["b.md", "#e"]),
        ("![a](b.png)", ["b.png"]),
        ('<source srcset="a.png"><img src="b.png">', ["a.png", "b.png"]),
        ("[a](https://example.com) `[b](c.md)`", []),
        ("```\n[a](b.md)\n```\n\n    [c](d.md)\n", []),
    ],
)
def test_a_link_is_seen(page: str, targets: list[str]) -> None:
    """Links of Markdown and pictures of HTML count, those in code and those to other sites do not."""
    assert links(page) == targets


@pytest.mark.parametrize(
    ("heading", "anchor"),
    [
        ("## Who may use REST", "who-may-use-rest"),
        ("### snapshot list, show and diff --json", "snapshot-list-show-and-diff---json"),
        ("# `a_b` of [c](d.md)", "a_b-of-c"),
    ],
)
def test_a_heading_has_its_anchor(heading: str, anchor: str) -> None:
    """Lower case, blanks as hyphens, without punctuation."""
    assert anchors(heading) == {anchor}


def test_a_broken_link_is_seen(tmp_path: Path) -> None:
    """A file that is missing, and a heading that is."""
    (tmp_path / "a.md").write_text("# Here\n", encoding="utf-8")
    page = tmp_path / "b.md"
    targets = ["a.md", "a.md#here", "a.md#there", "c.md", "#here"]
    page.write_text("# B\n", encoding="utf-8")
    assert [target for target in targets if broken(page, target)] == ["a.md#there", "c.md", "#here"]
