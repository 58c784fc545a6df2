"""`keyfold validate --broker` looks at the newest records of source topics on a real broker."""

from __future__ import annotations

import json
from pathlib import Path

from connectors.dev.embedded_kafka import EmbeddedKafka
from connectors.kafka.admin import Admin
from connectors.kafka.client_settings import ClientSettings, Setting
from connectors.operations.topic_samples import sampled
from tests.support.cli import invoke, worker_file, write_json
from tests.support.kafka import create_topic, produce

EVENT = json.dumps({"before": None, "after": {"id": 1}, "source": {"table": "a"}, "op": "c"}).encode()


def test_the_newest_records_of_each_topic_are_read(broker: EmbeddedKafka, topic_name: str) -> None:
    """Of its longest partition, with their headers; a topic that is empty or not there has none."""
    topics = [f"{topic_name}.{name}" for name in ("a", "empty", "gone")]
    for topic in topics[:2]:
        create_topic(broker.bootstrap, topic, 3, cleanup_policy="delete")
    records = [(1, b"k%d" % number, b"v", [("h", b"1")], 7) for number in range(30)]
    produce(broker.bootstrap, topics[0], [(0, b"other", b"v"), *records])
    client: dict[str, Setting] = {"bootstrap.servers": broker.bootstrap}
    clients = ClientSettings(client, {**client, "group.id": "g", "auto.offset.reset": "error"})
    admin = Admin(client)
    samples = sampled(clients, admin, topics)
    admin.close()
    assert samples.keys() == {topics[0]}
    assert [each.key for each in samples[topics[0]]] == [b"k%d" % number for number in range(25, 30)]
    assert samples[topics[0]][0].headers == [("h", b"1")]


def test_validate_warns_of_what_topics_hold(broker: EmbeddedKafka, topic_name: str, tmp_path: Path) -> None:
    """Change events that nothing unwraps and an output within the pattern: warnings, and the exit code stays 0."""
    for name, headers in (("a", []), ("out", [("keyfold.source.topic", b"a")])):
        create_topic(broker.bootstrap, f"{topic_name}.{name}", 1, cleanup_policy="delete")
        produce(broker.bootstrap, f"{topic_name}.{name}", [(0, b"k", EVENT, headers, 7)])
    settings = {"topics.regex": f"{topic_name}\\..*", "output.topic": "x.${topic}"}
    file = write_json(tmp_path / "c.json", {"name": "c", "connector.class": "keyfold.CompactedTopic", **settings})
    done = invoke("validate", file, "--worker", worker_file(tmp_path, broker.bootstrap), "--broker")
    assert done.exit_code == 0, done.output
    assert f'transforms: none takes the rows out of change events of Debezium in "{topic_name}.a"' in done.stdout
    assert f'topics.regex: takes in "{topic_name}.out": what keyfold publishes' in done.stdout


def test_validate_warns_of_truncates_that_could_not_be_applied(
    broker: EmbeddedKafka, topic_name: str, tmp_path: Path
) -> None:
    """Of the topic with several partitions alone: nothing says which of its records are before a truncate."""
    for name, partitions in (("a", 2), ("b", 1)):
        create_topic(broker.bootstrap, f"{topic_name}.{name}", partitions, cleanup_policy="delete")
    settings = {"topics.regex": f"{topic_name}\\..*", "output.topic": "x.${topic}", "debezium.truncate": "apply"}
    file = write_json(tmp_path / "c.json", {"name": "c", "connector.class": "keyfold.CompactedTopic", **settings})
    done = invoke("validate", file, "--worker", worker_file(tmp_path, broker.bootstrap), "--broker")
    assert done.exit_code == 0, done.output
    assert f'debezium.truncate: is apply, and "{topic_name}.a": a truncate of several partitions' in done.stdout
