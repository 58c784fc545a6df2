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
from tests.support import local_spark
from tests.support.oracle import runner
from tests.support.oracle.histories import WAYS, history
from tests.support.oracle.regressions import NAMES, regressions
from tests.support.oracle.runner import run
from tests.support.oracle.steps import Advance, AnyStep, Fold, FoldMethod, Ingest, Restart, Settings, SourceRecord

T = TypeVar("T")

SEEDS = [*range(4), 8, *(pytest.param(seed, marks=pytest.mark.long) for seed in (*range(4, 8), 9))]
LENGTH = 60


@pytest.mark.parametrize("seed", SEEDS)
def test_every_history_keeps_the_promises(seed: int) -> None:
    """Whatever happens to a connector, and in whatever order, every promise holds after every step."""
    run(history(seed, LENGTH))


@pytest.mark.parametrize("fold_method", WAYS)
@pytest.mark.parametrize("name", NAMES)
def test_what_was_once_wrong_stays_right(name: str, fold_method: FoldMethod) -> None:
    """Each of these histories once broke a promise; it keeps them all, however it is folded."""
    run(regressions(fold_method)[name])


@pytest.mark.parametrize("fold_method", WAYS)
def test_each_way_of_folding_is_taken(fold_method: FoldMethod) -> None:
    """Publishes and full folds go the way that a history's settings say, by limits that are small enough."""
    taken: list[FoldMethod] = []
    keys = [SourceRecord(0, b"%d" % number, b"1") for number in range(20)]
    told: list[AnyStep] = [Restart(Settings(local=-1, fold_method=fold_method)), Ingest((*keys, *keys)), Fold()]
    with ExitStack() as stack:
        for module, name, mark in (
            (in_memory, "latest", FoldMethod.MEMORY),
            (two_pass, "build_offset_map", FoldMethod.PASSES),
            (offset_map, "hash_partitions_of", FoldMethod.SPILLED),
            (local_spark, "_latest", FoldMethod.SPARK),
        ):
            stack.enter_context(mock.patch.object(module, name, _marking(getattr(module, name), taken, mark)))
        run(told)
    folds = {
        FoldMethod.MEMORY: {FoldMethod.MEMORY, FoldMethod.PASSES},
        FoldMethod.SPILLED: {FoldMethod.PASSES, FoldMethod.SPILLED},
    }.get(fold_method, {fold_method})
    assert folds <= {*taken}
    assert {*taken} - folds <= ({FoldMethod.SPARK} if fold_method is FoldMethod.SPILLED else set())


def test_a_history_that_fails_is_made_short(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is left fails as well, and none of its steps can go."""
    needed: list[AnyStep] = [Ingest((SourceRecord(0, b"a", b"1"),)), Advance(12_345)]
    told: list[AnyStep] = [*history(3, 6), needed[0], *history(4, 6), needed[1], *history(5, 6)]
    monkeypatch.setattr(runner, "failure", lambda steps: "wrong" if all(one in steps for one in needed) else None)
    assert runner.shrink(told) == needed


def test_the_same_seed_gives_the_same_history() -> None:
    """What a run has found can be run again by its seed."""
    assert history(17, 40) == history(17, 40) != history(18, 40)


def _marking(called: Callable[..., T], taken: list[FoldMethod], mark: FoldMethod) -> Callable[..., T]:
    def marked(*arguments: object, **named: object) -> T:
        taken.append(mark)
        return called(*arguments, **named)

    return marked
