"""keyfold starts wherever it is put: whatever its paths are called, whatever its account has."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from connectors.jvm.artifacts import KAFKA_VERSION, ensure_kafka
from tests.support.elsewhere import HARD_NAME, Elsewhere, make_environment

pytestmark = pytest.mark.timeout(420)


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that every account may use, of a short name: a socket's path has 107 bytes at most."""
    with tempfile.TemporaryDirectory(prefix="kf-", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o777)
        yield Path(folder)


def test_a_path_may_have_every_character_but_a_colon(place: Path) -> None:
    """Environment, cache, storage, configuration, broker and temporary files lie in a folder of a hard name."""
    root = place / HARD_NAME
    for folder in ("work", "tmp", f"cache/keyfold/kafka-{KAFKA_VERSION}"):
        (root / folder).mkdir(parents=True)
    for jar in ensure_kafka().iterdir():
        shutil.copy2(jar, root / "cache/keyfold" / f"kafka-{KAFKA_VERSION}" / jar.name)
    python = make_environment(root / "venv")
    variables = {"XDG_CACHE_HOME": str(root / "cache"), "TMPDIR": str(root / "tmp"), "LC_ALL": "C", "PYTHONPATH": ""}
    Elsewhere(root / "work", python, variables=variables).prove()
    assert {entry.name for entry in place.iterdir()} == {HARD_NAME}
    assert {entry.name for entry in root.iterdir()} == {"work", "tmp", "cache", "venv"}
    assert list((root / "tmp").iterdir()) == []
