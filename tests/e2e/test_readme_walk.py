"""README.md leads from an installed keyfold to an own topic, compacted and seen in the page: each line is run."""

from __future__ import annotations

import html
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx

from connectors.dev.embedded_kafka import EmbeddedKafka, free_port
from tests.support.browser import ACCEPT
from tests.support.cli import ROOT, execute
from tests.support.deployment import PROCESS_TIMEOUT_S, Process
from tests.support.kafka import wait_until
from tests.support.spark_settings import FAST_START


class Walk:
    """The blocks and commands of README's walk, with a broker, port and topic of this test's own."""

    def __init__(self, folder: Path, bootstrap: str, topic: str) -> None:
        self.page = f"http://127.0.0.1:{free_port()}"
        text = (ROOT / "README.md").read_text(encoding="utf-8")
        text = text[text.index("## Your own topic") : text.index("## Why trust it")]
        assert {"127.0.0.1:9092", "http://127.0.0.1:8083", "fill.py", "worker.json"} <= set(
            re.findall(r"[\w.:/]+", text)
        )
        text = text.replace("127.0.0.1:9092", bootstrap).replace("customers", topic)
        self.commands = [shlex.split(line) for line in re.findall(r"(?m)^    \.venv/bin/keyfold (.*)$", text)]
        (self.program,) = re.findall(r"(?ms)^```python\n(.*?)^```$", text)
        worker, connector = re.findall(r"(?ms)^```json\n(.*?)^```$", text)
        own: dict[str, Any] = {"listeners": self.page, **FAST_START}
        (folder / "worker.json").write_text(json.dumps({**json.loads(worker), **own}), encoding="utf-8")
        (folder / f"{topic}.json").write_text(connector, encoding="utf-8")

    def named(self, name: str) -> list[str]:
        """Returns the arguments of the one command `name`."""
        (arguments,) = (command for command in self.commands if command[0] == name)
        return arguments

    def shown(self) -> str:
        """Returns the words of the worker's page; none while it does not answer."""
        try:
            answer = httpx.get(f"{self.page}/", headers={"Accept": ACCEPT})
        except httpx.TransportError:
            return ""
        return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", answer.text)).split())


def test_a_reader_of_readme_sees_an_own_topic_in_the_page(
    broker: EmbeddedKafka, tmp_path: Path, topic_name: str
) -> None:
    """Both files are valid, the worker runs them, and page, topic and look-up have the 100 keys of the program."""
    walk = Walk(tmp_path, broker.bootstrap, topic_name)
    assert [command[0] for command in walk.commands] == ["kafka", "validate", "run", "tail", "get"]
    subprocess.run([sys.executable, "-c", walk.program], check=True, timeout=60)
    valid = execute(*walk.named("validate"), cwd=tmp_path)
    assert valid.returncode == 0, valid.stderr
    with Process(walk.named("run"), tmp_path / "worker.log", {}) as worker:
        seen = re.compile(rf"{topic_name} RUNNING 0 0 .* 100 2 ")
        wait_until(lambda: seen.search(walk.shown()), f"the page shows it:\n{worker.tail()}", PROCESS_TIMEOUT_S)
        records = execute(*walk.named("tail"), cwd=tmp_path)
        assert (records.returncode, len(records.stdout.splitlines())) == (0, 5), records.stderr
        record = execute(*walk.named("get"), "--text", cwd=tmp_path)
        assert json.loads(record.stdout)["value"] == "order 907", record.stderr
