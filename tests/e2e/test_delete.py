"""`keyfold delete`: after it the same connector file begins anew."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from compactor.errors import PositionError
from connectors.kafka.admin import Admin
from tests.support.cli import invoke
from tests.support.kafka import consume_all, produce
from tests.support.place import Place
from tests.support.records import some_records

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


def delete(place: Place, *more: str) -> str:
    """What `keyfold delete` prints; it has to end with 0."""
    connector, worker = place.write()
    done = invoke("delete", connector, "--worker", worker, "--yes", *more)
    assert done.exit_code == 0, done.output
    return done.output


def test_starting_over_after_the_storage_is_lost(spark: SparkSession, place: Place, tmp_path: Path) -> None:
    """The error of a lost storage says how to start over; done, the same file publishes everything anew."""
    produce(place.bootstrap, place.topic, some_records(1, 100))
    place.plain().once(spark)
    before = consume_all(place.bootstrap, place.output)
    shutil.rmtree(tmp_path / "storage")
    with pytest.raises(PositionError, match=r"keyfold delete CONNECTOR\.json --outputs"):
        place.once(spark)
    assert f"output topic {place.output}" in delete(place, "--outputs")
    admin = Admin({"bootstrap.servers": place.bootstrap})
    assert (admin.describe([place.output]), admin.has_group(f"connect-{place.name}")) == ({}, False)
    assert not (tmp_path / "storage" / place.name).exists()
    place.once(spark)
    assert place.breaches() == []
    assert [(one.key, one.value) for one in consume_all(place.bootstrap, place.output)] == [
        (one.key, one.value) for one in before
    ]


def test_an_output_that_is_left_is_not_published_to_again(spark: SparkSession, place: Place) -> None:
    """Without --outputs the next run refuses it, and says what to do; with another output.topic it begins anew."""
    produce(place.bootstrap, place.topic, some_records(1, 100))
    place.plain().once(spark)
    assert "refuses to publish into it" in delete(place)
    with pytest.raises(PositionError, match=r"set another output\.topic, and then run keyfold delete"):
        place.once(spark)
    assert f"topic {place.output}: nothing shows" in delete(place, "--outputs")
    place.once(spark, output_topic="${topic}.again")
    assert len(consume_all(place.bootstrap, f"{place.topic}.again")) == len(consume_all(place.bootstrap, place.output))
