"""What placeholders may read: folders and names that are allowed, small regular files, nothing that waits."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from connectors.known_values import hide_all
from connectors.placeholders import DIRECTORIES, FILES, VARIABLES, Limits, SecretError, resolve

MOST_S = 5.0
NOTHING = Limits(files=(), directories=(), variables="", over_rest=True)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("allowed", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "s.properties").write_text(f"pw={name}\n")
        (tmp_path / name / "pw").write_text(f"{name}\n")
    (tmp_path / "allowed" / "inside").symlink_to("pw")
    (tmp_path / "allowed" / "outside").symlink_to("../other/pw")
    (tmp_path / "allowed" / "outside.properties").symlink_to("../other/s.properties")
    (tmp_path / "link").symlink_to("allowed")
    (tmp_path / "allowed2").mkdir()
    (tmp_path / "allowed2" / "pw").write_text("neighbour")
    return tmp_path


@pytest.mark.parametrize(
    ("text", "resolved"),
    [
        ("${file:DIR/allowed/s.properties:pw}", "allowed"),
        ("${file:DIR/other/../allowed/s.properties:pw}", "allowed"),
        ("${file:DIR/link/s.properties:pw}", "allowed"),
        ("${directory:DIR/allowed:pw}", "allowed"),
        ("${directory:DIR/allowed:inside}", "allowed"),
        ("${env:DB_PASSWORD}", "geheim"),
    ],
)
def test_what_is_allowed_is_resolved(folder: Path, text: str, resolved: str) -> None:
    """A file below an allowed folder, however its path is written; a variable whose whole name matches."""
    limits = Limits((f"{folder}/link",), (f"{folder}/allowed/",), "DB_.*", over_rest=True)
    assert resolve(text.replace("DIR", str(folder)), limits, environ={"DB_PASSWORD": "geheim"}) == resolved


@pytest.mark.parametrize(
    ("text", "setting"),
    [
        ("${file:DIR/other/s.properties:pw}", FILES),
        ("${file:DIR/allowed/../other/s.properties:pw}", FILES),
        ("${file:DIR/allowed/outside.properties:pw}", FILES),
        ("${file:DIR/none.properties:pw}", FILES),
        ("${directory:DIR/other:pw}", DIRECTORIES),
        ("${directory:DIR/allowed:outside}", DIRECTORIES),
        ("${directory:DIR/allowed2:pw}", DIRECTORIES),
        ("${directory:DIR/allowed/../other:pw}", DIRECTORIES),
        ("${directory:DIR/none:pw}", DIRECTORIES),
        ("${env:MY_DB_PASSWORD}", VARIABLES),
        ("${env:NOT_SET}", VARIABLES),
    ],
)
@pytest.mark.parametrize("is_set", [True, False])
def test_what_is_not_allowed_is_not_read(folder: Path, text: str, setting: str, is_set: bool) -> None:
    """The error names the setting that would allow it, and does not say whether there is such a file or variable."""
    allowed = (f"{folder}/allowed",)
    limits = Limits(allowed, allowed, "DB_.*", over_rest=True) if is_set else NOTHING
    with pytest.raises(SecretError) as caught:
        resolve(text.replace("DIR", str(folder)), limits, environ={"MY_DB_PASSWORD": "geheim"})
    said = str(caught.value)
    assert setting in said
    assert "geheim" not in said
    assert "No such file" not in said
    assert "not set" not in said


def test_without_limits_everything_is_read(folder: Path) -> None:
    """So it is in connector files as long as the worker file limits nothing."""
    assert resolve(f"${{directory:{folder}/allowed:outside}}") == "other"


def _zeros(path: Path) -> None:
    path.symlink_to("/dev/zero")


def _pipe(path: Path) -> None:
    os.mkfifo(path)


def _sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 40)


def _folder(path: Path) -> None:
    path.mkdir()


@pytest.mark.parametrize(("make", "said"), [(_zeros, "no regular"), (_pipe, "no regular"), (_sparse, "larger than")])
@pytest.mark.parametrize("form", ["${file:DIR/x:k}", "${directory:DIR:x}"])
def test_nothing_is_waited_for_or_read_without_end(tmp_path: Path, make: object, said: str, form: str) -> None:
    """Devices, pipes and huge files are refused at once."""
    assert callable(make)
    make(tmp_path / "x")
    before = time.monotonic()
    with pytest.raises(SecretError, match=said):
        resolve(form.replace("DIR", str(tmp_path)))
    assert time.monotonic() - before < MOST_S


def _urls(first: int) -> str:
    return " ".join(f"http://u:geheim-{number}@h" for number in range(first, first + 120))


MANY = {"LINES": "\n".join(f"geheim-{number}" for number in range(401)), "URLS": _urls(0), "URLS2": _urls(120)}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("${directory:DIR:latin1}", "not UTF-8"),
        ("${file:DIR/latin1:x}", "UTF-8"),
        ("${file:DIR/deep.json:x}", "not a properties"),
        ("${file:DIR/large:x}", "64 KiB at most"),
        ("${file:DIR\0/x:x}", "NUL"),
        ("${directory:DIR:" + "n" * 5_000 + "}", "too long"),
        ("${env:A}" * 65, "more than 64 placeholders"),
        ("${env:LONG}" * 3, "more than 256 Ki"),
        ("${env:LINES}", "more than 400 lines and items"),
        ("${env:URLS} ${env:URLS2}", "more than 400 secrets"),
    ],
)
def test_what_is_read_is_bounded_and_never_quoted(tmp_path: Path, text: str, said: str) -> None:
    """Also not the byte at which a text ends to be one."""
    (tmp_path / "latin1").write_bytes("geheim=ä".encode("latin-1"))
    (tmp_path / "deep.json").write_text("[" * 100_000)
    (tmp_path / "large").write_text("a=\\\n" * 30_000)
    with pytest.raises(SecretError) as caught:
        resolve(text.replace("DIR", str(tmp_path)), environ=MANY | {"A": "a", "LONG": "x" * 100_000})
    assert said in str(caught.value)
    assert "geheim" not in str(caught.value)
    assert "0xe4" not in str(caught.value)


def test_a_long_trust_store_may_be_read() -> None:
    """Lines of certificates are public, and are not counted as secrets; those of a key beside them are hidden."""
    block = "-----BEGIN CERTIFICATE-----\n" + f"{'MIIB' * 16}\n" * 20 + "-----END CERTIFICATE-----\n"
    lines = [f"{number:04}{'k' * 60}" for number in range(50)]
    key = "\n".join(["-----BEGIN PRIVATE KEY-----", *lines, "-----END PRIVATE KEY-----"])
    resolve("${env:STORE}", environ={"STORE": block * 150 + key})
    assert all(hide_all(f"no key: {line}") == "no key: ${env:STORE}" for line in lines)


def test_a_pattern_of_names_holds_nobody() -> None:
    """A name that the pattern is not done with in its time is not allowed."""
    with pytest.raises(SecretError, match="does not match"):
        resolve(f"${{env:{'a' * 60}}}", Limits(variables="(a|aa)+b"), environ={})


def test_a_folder_that_becomes_a_link_leads_nowhere(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who may write to an allowed folder may replace what was looked at before it is opened."""
    (folder / "allowed" / "sub").mkdir()
    (folder / "allowed" / "sub" / "pw").write_text("allowed")
    is_below = Path.is_relative_to

    def looked_at(place: Path, *other: str) -> bool:
        found = is_below(place, *other)
        (folder / "allowed" / "sub").rename(folder / "allowed" / "before")
        (folder / "allowed" / "sub").symlink_to("../other")
        return found

    monkeypatch.setattr(Path, "is_relative_to", looked_at)
    with pytest.raises(SecretError, match="cannot be resolved"):
        resolve(f"${{directory:{folder}/allowed/sub:pw}}", Limits(directories=(f"{folder}/allowed",)))
