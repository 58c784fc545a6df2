"""What hostile records, a damaged manifest or a broken job do to a typed snapshot: it alone fails, or leaves them."""

from __future__ import annotations

import base64
import random
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import httpx
import pyarrow as pa
import pytest
from msgspec import Struct
from msgspec.structs import replace

from compactor.errors import SnapshotError
from compactor.model.record import HEADERS
from compactor.model.state import CatalogState
from compactor.ports import ColumnLayout
from compactor.snapshot.snapshots import ONE_TYPED
from compactor.turns import LOOK_S, READERS
from connectors.chain.rows import MOST_HEADERS
from connectors.chain.spec import chain_spec
from connectors.errors import DataError
from connectors.placeholders import resolve
from connectors.typed.column_types import ValueTypes
from connectors.typed.encoder import encoder
from tests.support.engine import row
from tests.support.local_spark import LocalSpark
from tests.support.memory.broker import MemoryBroker
from tests.support.memory.schema_registry import MemoryRegistry, served
from tests.support.memory.storage import MemoryStorage
from tests.support.typed_snapshots import TypedConnector

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PLAIN = {"value.converter": "keyfold.Json", "value.converter.schemas.enable": "false"}
ANSWERS_S = 0.1
KEPT_INT = base64.b64encode(pa.schema([("type", pa.int64())]).serialize().to_pybytes()).decode()


@pytest.mark.parametrize(("name", "schema", "data"), [
    ("Avro", {"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}]}, b"\x02"),
    ("JsonSchema", {"type": "object", "properties": {"id": {"type": "integer"}}}, b'{"id":1}'),
    ("Protobuf", 'syntax = "proto3"; message R { int64 id = 1; }', b"\0\x08\x01"),
])  # fmt: skip
def test_a_record_of_too_many_headers_fits_no_column(name: str, schema: Any, data: bytes) -> None:
    """Also if some of them say its schema; the records around it have their columns."""
    formats = {"JsonSchema": {"schemaType": "JSON"}, "Protobuf": {"schemaType": "PROTOBUF"}}
    memory = MemoryRegistry()
    value = b"\0" + memory.add(schema, **formats.get(name, {})).to_bytes(4, "big") + data
    many = [{"key": "__value_schema_id", "value": b"?"}] * (MOST_HEADERS + 1)
    batch = pa.RecordBatch.from_pydict({"value": [value] * 3, "headers": pa.array([[], many, []], HEADERS)})
    with served(memory) as url:
        settings = {"value.converter": f"keyfold.{name}", "value.converter.schema.registry.url": url}
        types = ValueTypes(side="value", chain=chain_spec(settings), resolve=resolve)
        survey = types.survey()
        survey.add(batch)
        columns, unplaced = types.decoder(types.layout(survey.kinds(), None, [])).decode(batch)
    assert [each and each["id"] for each in columns.to_pylist()] == [1, None, 1]
    assert "headers" in unplaced[1]


class SlowRegistry(MemoryRegistry):
    """A registry that takes a while for each answer."""

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Answers late."""
        time.sleep(ANSWERS_S)
        return super().handle_request(request)


def test_a_registry_that_answers_each_question_in_time_holds_no_task() -> None:
    """Ten answers a second may be waited for as many times as there are schemas: a task ends after its time."""
    memory = SlowRegistry()
    schema = {"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}]}
    ids = [memory.add({**schema, "doc": str(number)}) for number in range(20)]
    values = [b"\0" + number.to_bytes(4, "big") + b"\x02" for number in ids]
    batch = pa.RecordBatch.from_pydict({"value": values, "headers": pa.array([[]] * len(values), HEADERS)})
    with served(memory) as url:
        settings = {"value.converter": "keyfold.Avro", "value.converter.schema.registry.url": url}
        types = ValueTypes(side="value", chain=chain_spec(settings), resolve=resolve, wait_s=2 * ANSWERS_S)
        with pytest.raises(SnapshotError, match=r"within 0\.2 s\. It is tried again, later each time\."):
            types.survey().add(batch)
        assert len(memory.asked) <= 3
        decoder = types.decoder(ColumnLayout(pa.struct([("id", pa.int64())]), {}, None))
        with pytest.raises(SnapshotError, match="for now"):
            decoder.decode(batch)
    assert len(memory.asked) <= 6


@pytest.mark.parametrize("kept", ["x", "eHg=", "é", KEPT_INT])
def test_what_an_earlier_manifest_says_of_columns_may_be_damaged(kept: str) -> None:
    """Columns are made as if there were no earlier snapshot."""
    types = ValueTypes(side="value", chain=chain_spec(PLAIN), resolve=resolve)
    survey = types.survey()
    survey.add(pa.RecordBatch.from_pydict({"value": [b'{"a":1}'], "headers": pa.array([[]], HEADERS)}))
    assert types.layout(survey.kinds(), kept, ()) == types.layout(survey.kinds(), None, ())


class BrokenTypes(Struct, frozen=True):
    """Types that raise an error of no known class in the place `broken`."""

    types: ValueTypes
    broken: str

    def __getattr__(self, name: str) -> Any:
        return getattr(self.types, name)

    def survey(self) -> Any:
        """Returns a survey, or what is none."""
        return None if self.broken == "survey" else self.types.survey()

    def layout(self, *given: Any) -> Any:
        """Returns a layout, or raises."""
        return 1 // 0 if self.broken == "layout" else self.types.layout(*given)

    def decoder(self, layout: Any) -> Any:
        """Returns a decoder, or what is none."""
        return None if self.broken == "decoder" else self.types.decoder(layout)


@pytest.mark.parametrize(
    ("broken", "said"), [("survey", "NoneType"), ("layout", "ZeroDivisionError"), ("decoder", "NoneType")]
)
def test_an_error_of_any_class_fails_the_snapshot_alone(tmp_path: Path, broken: str, said: str) -> None:
    """The thread that takes snapshots lets this class alone pass."""
    connector = TypedConnector(tmp_path, PLAIN)
    connector.fold([row(0, 0, b"k", b'{"a":1}')])
    typed = connector.snapshots.typed
    assert typed is not None
    broken_types = BrokenTypes(cast("ValueTypes", typed.value), broken)
    connector.snapshots.typed = replace(typed, value=broken_types)
    with pytest.raises(SnapshotError, match=said):
        connector.take()
    connector.snapshots.typed = typed
    assert connector.take().table["a"].to_pylist() == [1]


class FailingSpark(LocalSpark):
    """Fails each job; `on_job` is called before."""

    def __init__(self, on_job: Callable[[], object]) -> None:
        super().__init__()
        self._on_job = on_job

    def range(self, *_: Any) -> Any:
        """Fails."""
        self._on_job()
        raise RuntimeError("Job aborted: results are bigger than maxResultSize")


@pytest.mark.parametrize("is_stopping", [False, True])
def test_a_job_that_spark_fails_fails_the_snapshot_alone(tmp_path: Path, *, is_stopping: bool) -> None:
    """Its data are removed. During a stop the error stays what it is: the stop may be its cause."""
    connector = TypedConnector(tmp_path, PLAIN)
    owner = connector.connector
    connector.fold([row(0, 0, b"k", b'{"a":1}')])

    def begin() -> None:
        (name,) = [name for name in connector.shelf.list("c/t") if name[0].isdigit()]
        connector.shelf.write(f"c/t/{name}/data/0.parquet", b"begun")
        if is_stopping:
            owner.stopping.set()

    owner.spark = cast("SparkSession", FailingSpark(begin))
    connector.set(PLAIN)
    with pytest.raises(RuntimeError if is_stopping else SnapshotError, match="maxResultSize"):
        connector.take()
    assert not [info.path for info in connector.shelf.walk("c/t") if info.path.endswith(".parquet")]


@pytest.mark.parametrize(
    "arrow", [pa.float32(), pa.decimal128(4, 2), pa.timestamp("us"), pa.binary(), pa.map_(pa.string(), pa.string())]
)
def test_plain_values_may_lack_columns_of_types_that_they_never_have(arrow: pa.DataType) -> None:
    """Records with schemas have made such columns; whole numbers fit narrow ones as well."""
    columns = pa.struct([("a", pa.int64()), ("small", pa.int16()), ("other", arrow)])
    made = encoder(None, columns)([{"a": 1, "small": 2}, {"a": 3, "other": None}])
    assert made.to_pylist() == [{"a": 1, "small": 2, "other": None}, {"a": 3, "small": None, "other": None}]
    with pytest.raises(DataError, match="does not fit"):
        encoder(None, columns)([{"other": "x"}])


class _Promising(MemoryBroker):
    """Promises readers of a snapshot so many ms."""

    promised_ms = 5

    def resume_safe_ms(self, state: CatalogState, topic: str) -> int | None:
        """Returns what is promised now."""
        return self.promised_ms


def test_after_a_wait_the_output_is_read_again(tmp_path: Path) -> None:
    """Another connector's snapshot may take an hour, after which the output promises its readers something else."""
    connector, broker = TypedConnector(tmp_path, PLAIN), _Promising(MemoryStorage())
    connector.set(PLAIN, broker=broker)
    connector.fold([row(0, 0, b"k", b'{"a":1}')])
    with ThreadPoolExecutor(1) as pool:
        with ONE_TYPED:
            taking = pool.submit(connector.take)
            assert wait([taking], 4 * LOOK_S).not_done
            broker.promised_ms = 9
        assert taking.result(10).manifest.resume_safe_until == "1970-01-01T00:00:01.009Z"


def test_maintenance_does_not_wait_for_the_typed_snapshot_of_another(tmp_path: Path) -> None:
    """It may last for an hour: nothing is due meanwhile, and what was due just before is left for the next time."""
    connector = TypedConnector(tmp_path, PLAIN)
    connector.set(PLAIN, engine=replace(connector.connector.settings, snapshot_interval_ms=1))
    connector.fold([row(0, 0, b"k", b'{"a":1}')])
    with ONE_TYPED:
        assert not connector.snapshots.due(1)
        assert connector.snapshots.take(1, asked=False) == ()
        assert connector.snapshots.lost_turn
    assert connector.snapshots.due(1)
    assert len(connector.snapshots.take(1, asked=False)) == 1
    assert not connector.snapshots.lost_turn


def test_typed_snapshots_of_a_worker_take_turns(tmp_path: Path) -> None:
    """Tasks of several may all wait for registries. A stop ends the wait."""
    connector = TypedConnector(tmp_path, PLAIN)
    connector.fold([row(0, 0, b"k", b'{"a":1}')])
    with ThreadPoolExecutor(1) as pool:
        with ONE_TYPED:
            taking = pool.submit(connector.take)
            assert wait([taking], 4 * LOOK_S).not_done
            assert connector.connector.catalog.state.snapshots == ()
        assert taking.result(10).table["a"].to_pylist() == [1]
        connector.fold([row(0, 1, b"l", b'{"a":2}')])
        with ONE_TYPED:
            taking = pool.submit(connector.take)
            assert wait([taking], 4 * LOOK_S).not_done
            connector.connector.stopping.set()
            taking.result(10)
    assert len(connector.connector.catalog.state.snapshots) == 1


@pytest.fixture
def in_company(request: pytest.FixtureRequest) -> Iterator[None]:
    """Whether a connector of the worker reads meanwhile."""
    with READERS.reading() if request.param else nullcontext():
        yield


@pytest.mark.usefixtures("in_company")
@pytest.mark.parametrize(
    ("in_company", "tasks"), [(False, 2), (True, 1)], indirect=["in_company"], ids=["alone", "beside readers"]
)
def test_a_typed_snapshot_leaves_a_task_of_sparks_to_others(tmp_path: Path, tasks: int) -> None:
    """Its own may each wait 20 s for a registry, or read records that are made to take long."""
    connector, spark = TypedConnector(tmp_path, PLAIN, partitions=2), LocalSpark(cores=2)
    for number in range(2):  # partitions, together more than is worth one task
        text = base64.b64encode(random.Random(number).randbytes(6 << 20))
        connector.fold([row(number, 0, b"k", b'{"a":"%b"}' % text)])
    connector.connector.spark = cast("SparkSession", spark)
    connector.set(PLAIN)
    assert sorted(connector.take().table["_partition"].to_pylist()) == [0, 1]
    # A third job, if two tasks have read, only sorts what they wrote.
    assert spark.tasks[:2] == [tasks, tasks]
