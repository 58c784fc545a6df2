"""The program of README.md, which makes the topic that its connector reads, does so on a real broker."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from connectors.dev.embedded_kafka import EmbeddedKafka
from tests.support.kafka import consume_all

README = Path(__file__).parents[2] / "README.md"


def test_it_makes_and_fills_the_topic(broker: EmbeddedKafka) -> None:
    """As it stands there, but for the broker's address."""
    (program,) = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    assert "127.0.0.1:9092" in program
    subprocess.run([sys.executable, "-c", program.replace("127.0.0.1:9092", broker.bootstrap)], check=True, timeout=60)
    found = consume_all(broker.bootstrap, "customers")
    assert len(found) == 1000
    assert len({record.key for record in found}) == 100
