"""The guides of the documentation do what they say: their connectors, programs and queries are run as they stand."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import duckdb

from connectors.config.files import load_connector
from connectors.dev.embedded_kafka import EmbeddedKafka
from tests.support.cli import ROOT, execute
from tests.support.deployment import Deployment
from tests.support.kafka import create_topic, produce

if TYPE_CHECKING:
    import pytest
    from pyspark.sql import SparkSession

KEYFOLD: Final = "keyfold.CompactedTopic"


class Guide:
    """A page with one broker, and names that are this test's own in place of the page's."""

    def __init__(self, name: str, folder: Path, bootstrap: str, topics: Mapping[str, str]) -> None:
        self._text = (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")
        self._names = {"127.0.0.1:9092": bootstrap, '"snapshots': f'"{folder}/snapshots'}
        self._names |= {f'"{topic}"': f'"{own}"' for topic, own in topics.items()}
        self._folder = folder
        self._bootstrap = bootstrap
        self._topics = topics

    def blocks(self, language: str) -> list[str]:
        """Returns the page's blocks of `language`, as they stand."""
        return re.findall(rf"(?ms)^```{language}\n(.*?)^```$", self._text)

    def connectors(self) -> list[dict[str, Any]]:
        """Returns the page's connectors of keyfold."""
        files: list[dict[str, Any]] = [json.loads(block) for block in self.blocks("json")]
        return [file for file in files if file["connector.class"] == KEYFOLD]

    def deployment(self, settings: Mapping[str, Any]) -> Deployment:
        """Returns `settings` as a connector on this test's broker; its source topic is made."""
        topic = self._topics[settings["topics"]]
        made = Deployment(self._folder, self._bootstrap, topic)
        names = {"topics": topic, "snapshot.location": str(self._folder / "snapshots")}
        made.settings = {**settings, **names, "name": made.name}
        if settings["output.topic"] in self._topics:
            made.settings["output.topic"] = self._topics[settings["output.topic"]]
        return made

    def program(self, code: str, made: Deployment) -> dict[str, Any]:
        """Runs a program of the page on the connector `made`; returns its names afterwards."""
        names: dict[str, Any] = {}
        exec(compile(self._own(code, made), "guide", "exec"), names)
        return names

    def _own(self, code: str, made: Deployment) -> str:
        code = re.sub(r'"snapshots/[\w.-]+/[\w.-]+"', json.dumps(made.snapshots.location), code)
        for name, own in self._names.items():
            code = code.replace(name, own)
        return code


def order(number: int, status: str, updated: int) -> bytes:
    """Returns an order in JSON."""
    return json.dumps({"id": number, "status": status, "total": 10 * number, "updated": updated}).encode()


def test_every_service_has_the_current_settings(
    spark: SparkSession, broker: EmbeddedKafka, tmp_path: Path, topic_name: str
) -> None:
    """docs/config-store.md: a setting that was changed has its last value, one that was removed is gone."""
    topics = {"settings.changes": topic_name, "settings.current": f"{topic_name}.current"}
    guide = Guide("config-store", tmp_path, broker.bootstrap, topics)
    (settings,) = guide.connectors()
    made = guide.deployment(settings)
    create_topic(broker.bootstrap, topic_name, 1, cleanup_policy="delete")
    change, service = guide.blocks("python")
    guide.program(change, made)
    made.run_once(spark)
    names = guide.program(service, made)
    assert (names["limit"], names["engine"], names["names"]) == (250, None, ["checkout.limit"])
    connector, worker = made.write()
    asked = execute("get", connector, "checkout.limit", "--text", "--worker", worker)
    assert asked.returncode == 0, asked.stderr
    assert "250" in asked.stdout


def test_a_table_takes_the_place_of_files_and_a_job(
    spark: SparkSession, broker: EmbeddedKafka, tmp_path: Path, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """docs/from-s3-sink.md: both queries have the same rows but for the deleted order, which the job brings back."""
    guide = Guide("from-s3-sink", tmp_path, broker.bootstrap, {"orders": topic_name})
    latest, every = guide.connectors()
    changes = [(1, order(1, "new", 1)), (2, order(2, "new", 2)), (1, order(1, "paid", 3)), (3, order(3, "new", 4))]
    create_topic(broker.bootstrap, topic_name, 1)
    records = [(0, str(number).encode(), value) for number, value in changes]
    produce(broker.bootstrap, topic_name, [*records, (0, b"2", None)])
    raw = tmp_path / "raw" / "orders" / "partition=0"
    raw.mkdir(parents=True)
    (raw / "orders+0+0000000000.json").write_bytes(b"\n".join(value for _, value in changes))
    made = guide.deployment(latest)
    made.run_once(spark)
    monkeypatch.chdir(tmp_path)
    job, table = guide.blocks("sql")
    here = re.sub(r"'snapshots/[\w.-]+/[\w.-]+/", f"'{made.snapshots.location}/", table)
    with duckdb.connect() as connection:
        before, after = (set(connection.execute(query).fetchall()) for query in (job, here))
    assert after == {(1, "paid", 10), (3, "new", 30)}
    assert before - after == {(2, "new", 20)}
    assert after <= before
    _every_record_is_kept(guide.deployment(every), spark)


def _every_record_is_kept(made: Deployment, spark: SparkSession) -> None:
    made.settings["name"] = made.name = f"{made.name}-all"
    made.run_once(spark)
    files = f"{made.snapshots.location}/current/**/*.parquet"
    with duckdb.connect() as connection:
        assert connection.execute(f"SELECT count(*) FROM '{files}'").fetchone() == (5,)


def test_a_table_in_any_process_takes_the_place_of_a_store(
    spark: SparkSession, broker: EmbeddedKafka, tmp_path: Path, topic_name: str
) -> None:
    """docs/from-ktable.md: each order gets the name of its customer as it is now, or none."""
    orders = f"{topic_name}.orders"
    guide = Guide("from-ktable", tmp_path, broker.bootstrap, {"customers": topic_name, "orders": orders})
    (settings,) = guide.connectors()
    made = guide.deployment(settings)
    create_topic(broker.bootstrap, topic_name, 2)
    create_topic(broker.bootstrap, orders, 1)
    produce(broker.bootstrap, topic_name, [(0, b"7", b'{"name":"Anne"}'), (0, b"7", b'{"name":"Ann"}')])
    produce(broker.bootstrap, orders, [(0, b"7", b'{"order":1}'), (0, b"8", b'{"order":2}')])
    made.run_once(spark)
    (join,) = guide.blocks("python")
    names = guide.program(join, made)
    assert names["enriched"] == [{"order": 1, "name": "Ann"}, {"order": 2, "name": None}]


def test_connectors_of_the_guides_are_valid(tmp_path: Path) -> None:
    """As `keyfold validate` reads them."""
    for name in ("config-store", "from-s3-sink", "from-ktable"):
        for settings in Guide(name, tmp_path, "127.0.0.1:9092", {}).connectors():
            file = tmp_path / "connector.json"
            file.write_text(json.dumps(settings), encoding="utf-8")
            assert load_connector(file).config.name == settings["name"]
