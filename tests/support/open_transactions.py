"""A foreign transaction that is open in a connector's output, which hides our own records from readers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from compactor import failpoints
from compactor.errors import FailpointError
from connectors.sinks import output_visibility
from tests.support.deployment import Deployment
from tests.support.kafka import open_transaction, produce
from tests.support.records import random_records

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def hidden_output(deployment: Deployment, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Hides what is sent to both output partitions while the block runs; runs wait a second for it."""
    monkeypatch.setattr(output_visibility, "VISIBLE_MS", 1_000)
    with open_transaction(deployment.bootstrap, deployment.output, [(0, b"foreign", b"v"), (1, b"foreign", b"v")]):
        yield


@contextmanager
def hidden_fold(
    spark: SparkSession, deployment: Deployment, monkeypatch: pytest.MonkeyPatch, seed: int
) -> Iterator[None]:
    """As `hidden_output`, after a fold was sent of which neither the catalog nor a reader knows."""
    with hidden_output(deployment, monkeypatch):
        produce(deployment.bootstrap, deployment.topic, random_records(seed, 100))
        with monkeypatch.context() as patched:
            patched.setenv(failpoints.VARIABLE, "publish.before-commit=error")  # between steps 11 and 12
            with pytest.raises(FailpointError):
                deployment.run_once(spark)
        yield
