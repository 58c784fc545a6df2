"""Failpoints for one connector of many: whose step it is, by the thread's log fields or by what is on the stack."""

from __future__ import annotations

from pathlib import Path

import pytest
import structlog

from compactor.runs.writer import RunTarget
from compactor.storage.locations import open_storage
from tests.faults.inject.concerned import concerns

pytestmark = pytest.mark.selected


def test_a_connectors_own_thread_has_its_name() -> None:
    """It counts before everything that the thread works on."""
    with structlog.contextvars.bound_contextvars(connector="c-mine"):
        assert concerns("c-mine")
        assert not concerns("c-other")


def test_elsewhere_it_is_the_innermost_that_works_on_any(tmp_path: Path) -> None:
    """A task writes files of one connector; what its callers hold is not asked."""
    target = made(tmp_path / "c-outer")
    assert concerns(Path(target.storage.location).name)
    assert inner(tmp_path, "c-inner")
    assert not inner(tmp_path, "c-outer")


def test_a_list_may_hold_portions_of_several(tmp_path: Path) -> None:
    """As a micro-batch does, which concerns each of them."""
    targets = [(made(tmp_path / "c-one"), 1), (made(tmp_path / "c-two"), 2)]
    assert len(targets) == 2
    assert concerns("c-one")
    assert concerns("c-two")
    assert not concerns("c-three")


def inner(folder: Path, connector: str) -> bool:
    target = made(folder / "c-inner")
    return concerns(connector) and target.max_bytes > 0


def made(folder: Path) -> RunTarget:
    return RunTarget(storage=open_storage(str(folder)), prefix="p", max_bytes=1)
