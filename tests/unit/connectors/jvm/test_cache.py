"""The cache is the account's own, wherever it can be written."""

from __future__ import annotations

import os
import pwd
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from connectors.errors import EXIT_CONFIG, ConfigError, exit_code
from connectors.jvm import cache
from connectors.jvm.cache import cache_with, default_cache


@pytest.fixture(autouse=True)
def account(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A home of the test's own, and a folder for temporary files."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path / "tmp"))
    monkeypatch.setattr(pwd, "getpwuid", lambda _: SimpleNamespace(pw_dir=str(tmp_path / "home")))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv("HOME", raising=False)
    return tmp_path


def only_writable(monkeypatch: pytest.MonkeyPatch, *folders: Path) -> None:
    """Lets nothing be written but below `folders`."""
    monkeypatch.setattr(os, "access", lambda path, _: any(Path(path).is_relative_to(each) for each in folders))


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"XDG_CACHE_HOME": "/caches", "HOME": "/ann"}, "/caches/keyfold"),
        ({"XDG_CACHE_HOME": "relative", "HOME": "/ann"}, "/ann/.cache/keyfold"),
        ({"XDG_CACHE_HOME": "", "HOME": "/ann"}, "/ann/.cache/keyfold"),
        ({"HOME": "/"}, "{}/home/.cache/keyfold"),
        ({}, "{}/home/.cache/keyfold"),
    ],
)
def test_it_is_where_the_account_says(
    monkeypatch: pytest.MonkeyPatch, account: Path, variables: dict[str, str], expected: str
) -> None:
    """XDG_CACHE_HOME by its specification, else the home by HOME, else the one that the system knows."""
    monkeypatch.setattr(os, "access", lambda *_: True)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert default_cache() == Path(expected.format(account))


def test_without_a_place_of_its_own_the_account_has_one_among_temporary_files(
    monkeypatch: pytest.MonkeyPatch, account: Path
) -> None:
    """Named by the user id, and readable for this account alone."""
    only_writable(monkeypatch, account / "tmp")
    made = default_cache()
    assert made == account / "tmp" / f"keyfold-cache-{os.getuid()}" == default_cache()
    assert made.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("squat", ["open", "link", "file"])
def test_a_place_that_others_could_write_is_refused(monkeypatch: pytest.MonkeyPatch, account: Path, squat: str) -> None:
    """What lies in the cache is run: another account must not have laid it there."""
    only_writable(monkeypatch, account / "tmp")
    place = account / "tmp" / f"keyfold-cache-{os.getuid()}"
    if squat == "open":
        place.mkdir()
        place.chmod(0o777)
    elif squat == "link":
        place.symlink_to(account / "tmp")
    else:
        place.touch()
    with pytest.raises(ConfigError, match="XDG_CACHE_HOME") as caught:
        default_cache()
    assert exit_code(caught.value) == EXIT_CONFIG


def test_what_is_there_is_taken_though_nothing_can_be_written(monkeypatch: pytest.MonkeyPatch, account: Path) -> None:
    """An image may bring a cache along."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(account / "image"))
    (account / "image/keyfold/kafka-1").mkdir(parents=True)
    only_writable(monkeypatch, account / "tmp")
    assert cache_with("kafka-1") == account / "image/keyfold"
    assert cache_with("kafka-2") == cache.default_cache() != account / "image/keyfold"
