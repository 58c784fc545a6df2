"""Which commit a result is of, in a repository of the test's own."""

from __future__ import annotations

import subprocess
from pathlib import Path

from connectors.dev.revision import UNKNOWN, is_exact, revision


def test_a_revision_is_the_commit_that_last_changed_the_code(tmp_path: Path) -> None:
    """A page changes nothing; code that is not committed is a `+`; without a repository the revision is unknown."""

    def git(*arguments: str) -> None:
        who = ("-c", "user.name=t", "-c", "user.email=t@localhost")
        subprocess.run(("git", *who, *arguments), cwd=tmp_path, check=True, capture_output=True)

    def change(path: str) -> None:
        (tmp_path / path).parent.mkdir(exist_ok=True)
        with (tmp_path / path).open("a", encoding="utf-8") as file:
            file.write("x")
        git("add", path)

    def found() -> str:
        return revision("code", "more", root=tmp_path)

    assert found() == UNKNOWN
    git("init")
    assert found() == UNKNOWN
    change("code/a.py")
    git("commit", "-m", "one")
    first = found()
    change("docs/a.md")
    git("commit", "-m", "two")
    assert found() == first
    change("more/b.py")
    assert found() == f"{first}+"
    git("commit", "-m", "three")
    assert found() not in (first, f"{first}+", UNKNOWN)
    assert [is_exact(one) for one in (first, f"{first}+", UNKNOWN, "")] == [True, False, False, False]
