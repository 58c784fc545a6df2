from __future__ import annotations

from pathlib import Path

import pytest

from compactor.storage.local import LocalStorage


@pytest.fixture
def storage(tmp_path: Path) -> LocalStorage:
    """A store in a folder whose name would be a pattern, or an escape, to who does not take it literally."""
    return LocalStorage(str(tmp_path / "a [1] {2} b%20c"))
