"""What an erasure removes of a connector's runs."""

from __future__ import annotations

from pathlib import Path

from compactor.clean.vacuum import purge_runs
from compactor.maintenance import naming
from tests.support.engine import row
from tests.support.erasure import files_with
from tests.support.kept_snapshots import KeptSnapshots

VALUE = b"the value that has to go"


def test_logs_that_share_a_file_are_written_again(tmp_path: Path) -> None:
    """A clean leaves a file of two partitions as long as one of them has not changed; one that is forced does not."""
    kept = KeptSnapshots(tmp_path, partitions=2)
    owner, runs = kept.owner, tmp_path / "store" / "runs"
    kept.keep([row(0, 0, b"k", VALUE), row(1, 0, b"other", b"stays")])
    owner.ingest([row(0, 1, b"k", None)])
    owner.publish()
    owner.cleaner.clean(0)
    purge_runs(owner.storage, owner.catalog, kept.now_ms * 2)
    (shared,) = files_with(VALUE, runs)
    forced = naming(owner.catalog.state, {f"runs/{Path(shared).name}"})
    assert forced == {owner.log(1).tp}
    assert naming(owner.catalog.state, ()) == frozenset()
    assert len(owner.cleaner.clean(0, forced=forced)) == 1
    purge_runs(owner.storage, owner.catalog, kept.now_ms * 2)
    assert files_with(VALUE, runs) == []
    assert owner.rows(1) == [(0, b"other", b"stays")]
