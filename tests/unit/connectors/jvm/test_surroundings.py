"""What a JVM is told of its account: only what it cannot find out itself."""

from __future__ import annotations

import os
import pwd
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from connectors.jvm.surroundings import homes, java_properties, java_variables, nameless_user

SPARE = Path("/spare")


@pytest.fixture
def account(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The home of this test's account, as the system knows it."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setattr(pwd, "getpwuid", lambda _: SimpleNamespace(pw_dir=str(home)))
    monkeypatch.setattr(tempfile, "gettempdir", lambda: "/" + "tmp")
    return home


@pytest.fixture
def no_account(account: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user id that the system does not know."""

    def unknown(_: int) -> None:
        raise KeyError("uid not found")

    monkeypatch.setattr(pwd, "getpwuid", unknown)


@pytest.mark.usefixtures("account")
def test_an_account_with_a_home_is_left_to_java() -> None:
    """Java asks the system for it, whatever HOME says."""
    assert java_properties({"HOME": "/elsewhere"}, SPARE) == []
    assert nameless_user({}) is None


@pytest.mark.usefixtures("no_account")
@pytest.mark.parametrize("home", [None, "", "/", "relative", "/does/not/exist"])
def test_a_user_without_account_and_home_is_given_both(home: str | None) -> None:
    """The root is no home: it is what HOME is set to where there is none."""
    environment = {} if home is None else {"HOME": home}
    assert java_properties(environment, SPARE) == ["-Duser.name=keyfold", "-Duser.home=/spare"]


@pytest.mark.usefixtures("no_account")
def test_a_home_in_the_environment_is_taken(tmp_path: Path) -> None:
    """As is a name there; HADOOP_USER_NAME wins over the others."""
    environment = {"HOME": str(tmp_path), "USER": "ann", "HADOOP_USER_NAME": "hdfs"}
    assert java_properties(environment, SPARE) == ["-Duser.name=hdfs", f"-Duser.home={tmp_path}"]


def test_a_home_that_cannot_be_written_is_none(account: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark makes folders there, even if it keeps nothing in them."""
    monkeypatch.setattr(os, "access", lambda path, _: Path(path) != account)
    assert java_properties({}, SPARE) == ["-Duser.home=/spare"]


@pytest.mark.usefixtures("account")
def test_temporary_files_go_to_tmpdir(monkeypatch: pytest.MonkeyPatch) -> None:
    """Java never looks at that variable."""
    monkeypatch.setattr(tempfile, "gettempdir", lambda: "/scratch")
    assert java_properties({}, SPARE) == ["-Djava.io.tmpdir=/scratch"]


def test_homes_are_those_of_the_environment_and_of_the_system(account: Path) -> None:
    """In this order."""
    assert homes({"HOME": "/ann"}) == [Path("/ann"), account]
    assert homes({"HOME": "/"}) == [account]


@pytest.mark.parametrize(
    ("locale", "expected"), [("C", {"LC_ALL": "C.UTF-8"}), ("POSIX", {"LC_ALL": "C.UTF-8"}), ("de_DE.UTF-8", {})]
)
def test_java_can_name_files_that_are_not_ascii(locale: str, expected: dict[str, str]) -> None:
    """Under LC_ALL=C it could not open them."""
    assert java_variables({"LC_ALL": locale}) == expected
    assert java_variables({}) == {}
