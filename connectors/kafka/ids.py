"""Topic ids as Kafka's own tools print them."""

from __future__ import annotations


def topic_id(found: object) -> str:
    """A topic's id in the base64 of URLs without padding, as `kafka-topics.sh --describe` shows it.

    confluent-kafka's Uuid prints the other alphabet of base64; an operator would search for it in vain.
    """
    return str(found).rstrip("=").translate(str.maketrans("+/", "-_"))
