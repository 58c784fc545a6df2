"""What a lost log is decided to have been, before anything is written."""

from __future__ import annotations

import pytest

from compactor.errors import RebuildError
from compactor.model.position import Position
from compactor.rebuild.plan import LostLog, check


def lost(identity: str | None) -> LostLog:
    position = Position(offset=5, catalog_id="lost", output_id="id", output_offset=9, identity=identity)
    return LostLog(topic="t", partition=0, position=position, source_start=0, source_end=7, output_end=9)


@pytest.mark.parametrize("identity", [None, "json"])
def test_the_identity_that_it_was_published_with_is_taken(identity: str | None) -> None:
    """There is nothing to refuse."""
    check(lost(identity), "c", identity, accepts_loss=False)


@pytest.mark.parametrize(("was", "now"), [(None, "json"), ("json", None), ("json", "avro")])
def test_another_identity_is_refused(was: str | None, now: str | None) -> None:
    """The output holds a live record of each key as keys were compared then: by another identity there may be two."""
    with pytest.raises(RebuildError) as refused:
        check(lost(was), "c", now, accepts_loss=True)
    assert f"compared by {was or 'bytes'}" in refused.value.message
    assert f"compaction.key.identity={was or 'bytes'}" in refused.value.action
