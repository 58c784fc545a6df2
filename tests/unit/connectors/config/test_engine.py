"""Who may read what a worker keeps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from connectors.config.engine import connector_storage, warn_of_readers
from connectors.config.worker import WorkerConfig


@pytest.mark.parametrize(
    ("top", "own", "told"), [(0o755, 0o755, True), (0o755, 0o750, True), (0o700, 0o755, False), (0o755, 0o700, False)]
)
def test_a_folder_that_others_may_read_is_told_of(tmp_path: Path, top: int, own: int, told: bool) -> None:
    """It is left as it is, as somebody may want it so."""
    settings: dict[str, Any] = {"bootstrap.servers": "h:1", "storage.location": str(tmp_path / "store")}
    worker = WorkerConfig(**settings)
    warn_of_readers(worker, "c")  # nothing is there yet
    connector_storage(worker, "c").write("status.json", b"{}")
    (tmp_path / "store" / "c").chmod(own)
    (tmp_path / "store").chmod(top)
    with capture_logs() as lines:
        warn_of_readers(worker, "c")
    assert [line["folder"] for line in lines] == [str(tmp_path / "store" / "c")] * told
    assert (tmp_path / "store" / "c").stat().st_mode & 0o777 == own
