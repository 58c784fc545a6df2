"""keyfold starts wherever it is put: whatever its paths are called, whatever its account has."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from connectors.jvm.artifacts import KAFKA_VERSION, ensure_kafka
from tests.support.elsewhere import (
    HARD_NAME,
    UNKNOWN,
    Elsewhere,
    first_process,
    make_environment,
    read_only_root,
    unknown_account,
)

pytestmark = pytest.mark.timeout(420)


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that every account may use, of a short name: a socket's path has 107 bytes at most."""
    with tempfile.TemporaryDirectory(prefix="kf-", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o777)
        yield Path(folder)


@pytest.mark.long
def test_a_path_may_have_every_character_but_a_colon(place: Path) -> None:
    """Environment, cache, storage, configuration, broker and temporary files lie in a folder of a hard name."""
    root = place / HARD_NAME
    for folder in ("work", "tmp", f"cache/keyfold/kafka-{KAFKA_VERSION}"):
        (root / folder).mkdir(parents=True)
    for jar in ensure_kafka().iterdir():
        shutil.copy2(jar, root / "cache/keyfold" / f"kafka-{KAFKA_VERSION}" / jar.name)
    python = make_environment(root / "venv")
    variables = {"XDG_CACHE_HOME": str(root / "cache"), "TMPDIR": str(root / "tmp"), "LC_ALL": "C", "PYTHONPATH": ""}
    variables["PYSPARK_SUBMIT_ARGS"] = "--master yarn pyspark-shell"  # of another Spark; yarn needs more than that
    Elsewhere(root / "work", python, variables=variables).prove()
    assert {entry.name for entry in place.iterdir()} == {HARD_NAME}
    assert {entry.name for entry in root.iterdir()} == {"work", "tmp", "cache", "venv"}
    assert list((root / "tmp").iterdir()) == []


@pytest.mark.long  # it takes 20 s
@pytest.mark.parametrize(
    "home",
    [pytest.param(None, id="no HOME"), pytest.param("/", id="HOME is the root")],
)
def test_a_user_without_account_and_home_needs_one_folder(place: Path, home: str | None) -> None:
    """As in OpenShift: a user id that the system does not know, and nothing but TMPDIR and the work can be written.

    A command is the first process there, which nothing outlives, and leaves nothing among temporary files all the same.
    """
    account, root = unknown_account(), read_only_root(place)
    if account is None or root is None:
        pytest.skip("this machine lets nobody be another user with a root that is read-only")
    for folder in ("work", "tmp"):
        (place / folder).mkdir()
        (place / folder).chmod(0o777)
    variables = {"TMPDIR": str(place / "tmp"), "XDG_CACHE_HOME": str(ensure_kafka().parents[1])}
    homes = {} if home is None else {"HOME": home}
    there = Elsewhere(place / "work", Path(sys.executable), [*root, *account], {**variables, **homes}, first_process())
    logs = there.prove()
    assert {entry.name for entry in (place / "tmp").iterdir()} <= {f"keyfold-cache-{UNKNOWN}"}
    assert "Exception" not in "".join(logs.values())
