"""Runs whole histories in a folder of their own, and makes those that fail short."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, NamedTuple

import structlog

from tests.support.oracle import steps
from tests.support.oracle.histories import history as made
from tests.support.oracle.oracle import Oracle

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Outcome(NamedTuple):
    """How the history of a seed went; `failure` is None where every promise held."""

    seed: int
    failure: str | None


def run_seed(work: tuple[int, int]) -> Outcome:
    """Runs the history of a seed and a length, in silence. It stands here for spawned processes to import it."""
    silence_logs()
    seed, length = work
    return Outcome(seed, failure(made(seed, length)))


def silence_logs() -> None:
    """What the engine logs of steps that fail on purpose is no news here."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))


def run(history: Sequence[steps.AnyStep], spark: SparkSession | None = None) -> None:
    """Does all steps; raises after the first that breaks a promise, or what a step raises. None: without Spark."""
    with TemporaryDirectory(prefix="keyfold-") as folder:
        Oracle(spark, Path(folder)).run(history)


def failure(history: Sequence[steps.AnyStep]) -> str | None:
    """What is wrong in the first step of `history`, run without Spark, in which anything is; None where nothing is."""
    try:
        run(history)
    except Exception as error:  # noqa: BLE001 - whatever a step raises is a finding
        return "\n".join([f"{type(error).__name__}: {error}", *getattr(error, "__notes__", [])])
    return None


def shrink(history: Sequence[steps.AnyStep]) -> list[steps.AnyStep]:
    """Steps of `history`, which fails, that still fail, though none of them can be left out alone."""
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
