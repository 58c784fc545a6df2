"""Runs whole histories, each in a temporary folder, and shrinks those that fail."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, NamedTuple

import structlog

from compactor.model.state import BY_OFFSET
from tests.support.oracle import steps
from tests.support.oracle.histories import history as made
from tests.support.oracle.oracle import Oracle

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Outcome(NamedTuple):
    """Outcome of the history of a seed; `failure` is None if every promise held."""

    seed: int
    failure: str | None


def run_seed(work: tuple[int, int]) -> Outcome:
    """Runs the history of a seed and a length without logs; a public function, which spawned processes can import."""
    silence_logs()
    seed, length = work
    return Outcome(seed, failure(made(seed, length)))


def silence_logs() -> None:
    """Drops the logs, most of which are of steps that fail on purpose."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))


def run(history: Sequence[steps.AnyStep], spark: SparkSession | None = None) -> None:
    """Performs all steps, without Spark if None; raises at the first that fails or breaks a promise."""
    with TemporaryDirectory(prefix="keyfold-") as folder:
        order = next((step.order for step in history if isinstance(step, steps.OrderedBy)), BY_OFFSET)
        any_case = any(isinstance(step, steps.AnyCase) for step in history)
        fills = any(isinstance(step, steps.Fills) for step in history)
        of_topics = any(isinstance(step, steps.OfTopics) for step in history)
        keeps_all = any(isinstance(step, steps.KeepsAll) for step in history)
        Oracle(
            spark, Path(folder), any_case=any_case, order=order, fills=fills, of_topics=of_topics, keeps_all=keeps_all
        ).run(history)


def failure(history: Sequence[steps.AnyStep]) -> str | None:
    """Runs `history` without Spark; returns the first failure, None if there is none."""
    try:
        run(history)
    except Exception as error:  # noqa: BLE001 - whatever a step raises is a finding
        return "\n".join([f"{type(error).__name__}: {error}", *getattr(error, "__notes__", [])])
    return None


def shrink(history: Sequence[steps.AnyStep]) -> list[steps.AnyStep]:
    """Returns the steps of a failing history that still fail, none of which can be left out."""
    found = list(history)
    size = len(found)
    while size:
        at = 0
        while at < len(found):
            less = found[:at] + found[at + size :]
            if failure(less) is None:
                at += size
            else:
                found = less
        size //= 2
    return found
