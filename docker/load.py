"""Fills topic `flights` of a broker as the demo does, once: an existing topic is left as it is."""

from __future__ import annotations

import sys

from confluent_kafka.admin import AdminClient

from connectors.dev.demo.data import flights
from connectors.dev.demo.load import TOPIC, create_topic, load


def main(bootstrap: str) -> None:
    """Makes and fills the topic; raises UnreachableError where the broker does not take it."""
    if TOPIC in AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=30).topics:
        print(f"topic {TOPIC} is there already")
        return
    create_topic(bootstrap)
    sent = load(bootstrap, flights(), lambda _count: None)
    print(f"{sent:,} records sent to topic {TOPIC}")


if __name__ == "__main__":
    main(sys.argv[1])
