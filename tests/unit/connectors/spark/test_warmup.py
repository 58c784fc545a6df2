"""What Spark's Python processes have imported before the first micro-batch."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from connectors.source import stream
from connectors.spark import session, warmup
from connectors.spark.session import SparkStart
from tests.support.cli import ROOT, environment

READS = """
import sys
from connectors.spark import warmup
reader = warmup.WarmUp({"tasks": "2"}).reader(None)
found = [warmup.READER in sys.modules]
found += [(list(reader.read(one)), warmup.READER in sys.modules) for one in reader.partitions()]
print(found)
"""

MAKES = """
import sys
from connectors.source import datasource
source = datasource.KafkaSource({"connector": "c", "consumer.config": "{}", "admin.config": "{}", "topics": '["t"]'})
source.schema(), source.streamReader(None)
print([one for one in ("structlog", "connectors.source.reader", "connectors.source.planner") if one in sys.modules])
"""


def test_a_task_imports_the_source_and_reads_nothing() -> None:
    """As many tasks as it is told of; what plans them has no use for the source."""
    done = subprocess.run(
        [sys.executable, "-c", READS], env=environment(), cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[False, ([], True), ([], True)]"


def test_to_make_a_source_imports_neither_what_reads_nor_what_logs() -> None:
    """Spark does that in processes of their own, one after the other, while a worker starts."""
    done = subprocess.run(
        [sys.executable, "-c", MAKES], env=environment(), cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("failure", [None, RuntimeError("no")])
def test_a_start_warms_up_and_lives_without_it(monkeypatch: pytest.MonkeyPatch, failure: Exception | None) -> None:
    """The session is there for the take-overs before that, and whatever comes of it."""
    made, warmed = object(), []

    def read(found: Any) -> None:
        warmed.append(found)
        if failure:
            raise failure

    monkeypatch.setattr(session, "create", lambda *_: made)
    monkeypatch.setattr(stream, "register", lambda _: None)
    monkeypatch.setattr(warmup, "read", read)
    start = SparkStart("local[1]", {})
    assert start.wait(30) is made
    start._thread.join(30)
    assert warmed == [made]
