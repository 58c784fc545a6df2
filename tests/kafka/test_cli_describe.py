"""What `describe` says of source topics that became something else since the connector looked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from compactor.catalog.catalog import Catalog
from compactor.model.actions import AddPartition, AddTopic, CloseTopic
from connectors.dev.embedded_kafka import EmbeddedKafka
from connectors.kafka.admin import Admin
from tests.support.cli import NAME, connector_file, invoke, storage_of, worker_file
from tests.support.kafka import create_topic, delete_topic, produce


class Looked:
    """A connector that knows a topic with three records, none of which it has taken in."""

    def __init__(self, bootstrap: str, folder: Path, topic: str) -> None:
        self.bootstrap, self.topic = bootstrap, topic
        self.files = connector_file(folder, topics=topic), "--worker", worker_file(folder, bootstrap)
        self.fill(3)
        found = Admin({"bootstrap.servers": bootstrap}).describe([topic])[topic]
        self.catalog = Catalog.open(storage_of(folder), NAME)
        self.catalog.take_over("tester:1", 0)
        adds = AddTopic(topic=topic, topic_id=found.id, output=None, output_id=None)
        self.catalog.commit(lambda _: (adds, AddPartition(topic=topic, partition=0, bucket=0, start=0)), 0)

    def fill(self, records: int) -> None:
        create_topic(self.bootstrap, self.topic)
        produce(self.bootstrap, self.topic, [(0, b"k", b"v")] * records)

    def described(self) -> tuple[dict[str, Any], dict[str, Any], str]:
        """Its topic and its partition as programs read them, and what people read."""
        found = json.loads(invoke("describe", *self.files, "--json").stdout)
        return found["topics"][0], found["partitions"][0], invoke("describe", *self.files).stdout


@pytest.fixture
def looked(broker: EmbeddedKafka, tmp_path: Path, topic_name: str) -> Looked:
    return Looked(broker.bootstrap, tmp_path, topic_name)


def test_a_topic_that_is_as_it_was_has_a_lag(looked: Looked) -> None:
    """Nothing is said to have become of it."""
    topic, partition, text = looked.described()
    assert (topic["changed"], partition["source_end"], partition["lag"]) == (None, 3, 3)
    assert "since" not in text


def test_a_recreated_topic_has_no_lag(looked: Looked) -> None:
    """Its ends are another topic's: they say nothing of our offsets, also where it counted as deleted before."""
    delete_topic(looked.bootstrap, looked.topic)
    looked.fill(5)
    for closed in (None, "deleted"):
        if closed:
            looked.catalog.commit(lambda _: [CloseTopic(topic=looked.topic, reason="deleted")], 0)
        topic, partition, text = looked.described()
        assert (topic["changed"], topic["closed"]) == ("recreated", closed)
        assert (partition["source_end"], partition["lag"]) == (None, None)
        assert "no: recreated since" in text
        assert f"Topic {looked.topic} was recreated since the connector last read it" in text


def test_a_connector_whose_only_topic_is_deleted_reads_nothing(looked: Looked) -> None:
    """Whatever state it is in; before the connector has noticed it, and after."""
    delete_topic(looked.bootstrap, looked.topic)
    topic, partition, text = looked.described()
    assert (topic["changed"], topic["closed"], partition["lag"]) == ("deleted", None, None)
    assert "It reads nothing" in text
    assert "no: deleted since" in text
    looked.catalog.commit(lambda _: [CloseTopic(topic=looked.topic, reason="deleted")], 0)
    topic, _, text = looked.described()
    assert (topic["changed"], topic["closed"]) == (None, "deleted")
    assert "It reads nothing" in text
    assert "no: deleted " in text
