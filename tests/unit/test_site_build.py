"""`make docs` builds the site strictly, and what it builds asks nothing of other sites."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.unit.test_structure import ROOT

pytestmark = pytest.mark.skipif(find_spec("material") is None, reason="make docs installs mkdocs-material")
LOADED = re.compile(r"<(?:script|img|iframe|source)[^>]*? src(?:set)?=\"([^\"]+)\"|<link[^>]*? href=\"([^\"]+)\"")
"""What a browser fetches by itself."""


def _build(sources: Path, site: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mkdocs", "build", "-f", str(sources / "mkdocs.yml"), "-d", str(site)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONWARNINGS": "ignore"}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=120)


def test_the_site_is_whole_and_loads_only_its_own_files(tmp_path: Path) -> None:
    """Each page is there, links have titles, the search has its index, and what is loaded is the site's own."""
    built = _build(ROOT, tmp_path)
    assert built.returncode == 0, built.stderr
    pages = {str(path.relative_to(ROOT / "docs").with_suffix("")) for path in (ROOT / "docs").rglob("*.md")}
    htmls = {path: path.read_text(encoding="utf-8") for path in tmp_path.rglob("*.html")}
    names = {str(path.relative_to(tmp_path).with_suffix("")) for path in htmls}
    assert {name.replace("README", "index") for name in pages} <= names
    assert "exactly once" in (tmp_path / "search" / "search_index.js").read_text(encoding="utf-8")
    assert [path for path, html in htmls.items() if re.search(r">[\w/-]+\.md</a>", html)] == [], "no title"
    assert "customers.compacted" in htmls[tmp_path / "start.html"], "the walk of README.md"
    loaded = {first or second for html in htmls.values() for first, second in LOADED.findall(html)}
    assert len(loaded) > 5
    assert [target for target in loaded if re.match(r"(?:https?:)?//", target)] == []
    styles = "".join(path.read_text(encoding="utf-8") for path in tmp_path.rglob("*.css"))
    assert re.findall(r"url\(['\"]?(?:https?:)?//[^)]*", styles) == []


@pytest.mark.long  # test_docs_site.py: the same of the sources
@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        ("start.md", "\n[lost](nowhere.md)\n", "nowhere.md"),
        ("start.md", "\n[lost](design.md#nowhere)\n", "#nowhere"),
        ("orphan.md", "# Orphan\n", "orphan.md"),
    ],
)
def test_what_leads_nowhere_ends_the_build(name: str, text: str, complaint: str, tmp_path: Path) -> None:
    """A lost page, a lost heading, a page that the menu lacks: each is named, and no site is made of it."""
    for file in ("mkdocs.yml", "README.md"):
        shutil.copy(ROOT / file, tmp_path)
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    with (tmp_path / "docs" / name).open("a", encoding="utf-8") as page:
        page.write(text)
    built = _build(tmp_path, tmp_path / "site")
    assert built.returncode != 0
    assert complaint in built.stderr
