"""Histories by chance on the real engine, held against plain dicts and docs/protocol.md after every step.

`make histories SEEDS=0-199 STEPS=40` runs more of them; tests/spark/test_oracle.py runs some on Spark.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import TypeVar
from unittest import mock

import pytest

from compactor.fold import in_memory, offset_map, two_pass
from tests.support import localspark
from tests.support.oracle import runs
from tests.support.oracle.histories import WAYS, history
from tests.support.oracle.oncewrong import NAMES, once_wrong
from tests.support.oracle.runs import run
from tests.support.oracle.steps import Advance, Any, Fold, Ingest, Rec, Restart, Settings, Way

T = TypeVar("T")

SEEDS = range(10)
LENGTH = 60


@pytest.mark.parametrize("seed", SEEDS)
def test_every_history_keeps_the_promises(seed: int) -> None:
    """Whatever happens to a connector, and in whatever order, every promise holds after every step."""
    run(history(seed, LENGTH))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", NAMES)
def test_what_was_once_wrong_stays_right(name: str, way: Way) -> None:
    """Each of these histories once broke a promise; it keeps them all, however it is folded."""
    run(once_wrong(way)[name])


@pytest.mark.parametrize("way", WAYS)
def test_each_way_of_folding_is_taken(way: Way) -> None:
    """Publishes and full folds go the way that a history's settings say, by limits that are small enough."""
    taken: list[Way] = []
    keys = [Rec(0, b"%d" % number, b"1") for number in range(20)]
    told: list[Any] = [Restart(Settings(local=-1, way=way)), Ingest((*keys, *keys)), Fold()]
    with ExitStack() as stack:
        for place, name, mark in (
            (in_memory, "latest", Way.MEMORY),
            (two_pass, "build_offset_map", Way.PASSES),
            (offset_map, "classes_of", Way.CLASSES),
            (localspark, "_latest", Way.SPARK),
        ):
            stack.enter_context(mock.patch.object(place, name, _marking(getattr(place, name), taken, mark)))
        run(told)
    folds = {Way.MEMORY: {Way.MEMORY, Way.PASSES}, Way.CLASSES: {Way.PASSES, Way.CLASSES}}.get(way, {way})
    assert folds <= {*taken}
    assert {*taken} - folds <= ({Way.SPARK} if way is Way.CLASSES else set())


def test_a_history_that_fails_is_made_short(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is left fails as well, and none of its steps can go."""
    needed: list[Any] = [Ingest((Rec(0, b"a", b"1"),)), Advance(12_345)]
    told: list[Any] = [*history(3, 6), needed[0], *history(4, 6), needed[1], *history(5, 6)]
    monkeypatch.setattr(runs, "failure", lambda steps: "wrong" if all(one in steps for one in needed) else None)
    assert runs.shortened(told) == needed


def test_the_same_seed_gives_the_same_history() -> None:
    """What a run has found can be run again by its seed."""
    assert history(17, 40) == history(17, 40) != history(18, 40)


def _marking(called: Callable[..., T], taken: list[Way], mark: Way) -> Callable[..., T]:
    def marked(*arguments: object, **named: object) -> T:
        taken.append(mark)
        return called(*arguments, **named)

    return marked
