"""What is kept of keys, asked over REST."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import httpx
import pyarrow as pa
import pytest
from fastapi import Request
from msgspec.structs import replace

from compactor.errors import DamagedFileError, KeyfoldError, StorageError, StorageRefusedError
from compactor.model import record
from compactor.model.log import PartitionLog, empty
from compactor.model.record import TopicPartition
from compactor.model.state import CatalogState
from compactor.runs import writer
from compactor.runs.file_stats import level0_run
from compactor.runs.writer import RunTarget
from connectors.errors import MachineError, RegistryError, RegistryRefusedError, UnreachableError
from connectors.rest.errors import of_keyfold
from tests.support.engine import row
from tests.support.memory.schema_registry import MemoryRegistry, served
from tests.support.rest import RestWorker, message
from tests.support.served_registry import Registry

PATH = "/keyfold/connectors/a/records"


def keep(
    worker: RestWorker,
    *partitions: Sequence[tuple[bytes, bytes | None]],
    is_indexed: bool = True,
    settings: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Makes the connector `a`, which keeps these records of topic t, all but the last of a partition published."""
    worker.create("a", **settings)
    target = RunTarget(storage=worker.location.sub("a"), prefix="1-j", max_bytes=1 << 20, is_indexed=is_indexed)
    logs = [_log(target, number, records) for number, records in enumerate(partitions)]
    worker.supervisor("a").catalog_state = CatalogState(connector="a", logs=tuple(logs))


def _log(target: RunTarget, number: int, records: Sequence[tuple[bytes, bytes | None]]) -> PartitionLog:
    rows = [row(number, at, key, value) for at, (key, value) in enumerate(records)]
    stats = list(writer.write([pa.RecordBatch.from_pylist(rows, record.RUN)], target, "ingest.write"))
    end = len(rows)
    begun = replace(empty(TopicPartition("t", number), 0, 0, None), end=end, folded_end=end, published=end - 1)
    return replace(begun, runs=(level0_run(0, end, stats, 0),))


def test_the_latest_record_of_each_key_is_shown(worker: RestWorker) -> None:
    """In the order of the keys, from each partition that has it; with the offsets below which that holds."""
    keep(worker, [(b"a", b"1"), (b"b", b"1"), (b"a", None)], [(b"a", b"\xff"), (b"c", b"2")])
    answer = worker.ask("GET", PATH, params={"key": ["b", "a", "no"], "text": "true"}).json()
    fields = ("key", "partition", "offset", "value", "published")
    assert [tuple(each[name] for name in fields) for each in answer["records"]] == [
        ("b", 0, 1, "1", True),
        ("a", 0, 2, None, False),
        ("a", 1, 0, {"base64": "/w=="}, True),
    ]
    assert answer["ends"] == {"t": {"0": 3, "1": 2}}


def test_bytes_are_base64_and_keys_may_be_hexadecimal(worker: RestWorker) -> None:
    """As those of `keyfold get` elsewhere than on a terminal."""
    keep(worker, [(b"\x00\xff", b"v"), (b"", b"")])
    answer = worker.ask("GET", PATH, params={"key": "00ff", "hex": "true", "topic": "t", "partition": "0"}).json()
    assert [(each["key"], each["value"]) for each in answer["records"]] == [("AP8=", "dg==")]


OF_JSON = {"key.converter": "keyfold.Json", "key.converter.schemas.enable": "false"}


def test_a_key_of_a_converter_is_found_by_its_value(worker: RestWorker) -> None:
    """Whatever spaces it is kept with, beside keys that are given as they are kept; and only if the request says so."""
    keep(worker, [(b'{"id": 7}', b"1"), (b'{"id":8}', b"2")], [(b'{"id":7}', b"3"), (b'"x"', b"4")], settings=OF_JSON)
    asked: dict[str, str | list[str]] = {"key": ['{ "id": 7 }', "absent", '{"id":8}', "x"], "text": "true"}
    answer = worker.ask("GET", PATH, params={**asked, "typed": "true"}).json()
    assert {(each["key"], each["value"]) for each in answer["records"]} == {
        ('{"id": 7}', "1"),
        ('{"id":7}', "3"),
        ('{"id":8}', "2"),
        ('"x"', "4"),
    }
    assert answer["ends"] == {"t": {"0": 2, "1": 2}}
    assert [each["key"] for each in worker.ask("GET", PATH, params=asked).json()["records"]] == ['{"id":8}']


def test_a_key_of_avro_is_found_by_its_value(worker: RestWorker) -> None:
    """Once its registry answers: what it does not say is not known to be absent."""
    params = {"key": "b", "typed": "true", "text": "true"}
    memory = MemoryRegistry()
    with served(memory) as url:
        registry = Registry(url, memory)
        keep(worker, [(registry.avro({"type": "string"}, "b"), b"1")], settings=registry.settings(side="key"))
        assert [each["value"] for each in worker.ask("GET", PATH, params=params).json()["records"]] == ["1"]
    answer = worker.ask("GET", PATH, params=params)
    assert (answer.status_code, "The schema registry does not answer" in message(answer)) == (503, True)
    assert int(answer.headers["Retry-After"]) > 0
    assert "check schema.registry.url" in message(answer)


@pytest.mark.parametrize(
    ("status", "code", "said"),
    [(401, 502, "Check basic.auth.user.info"), (403, 502, "Check basic"), (503, 503, "does not answer")],
)
def test_a_registry_that_refuses_or_fails_says_so(worker: RestWorker, status: int, code: int, said: str) -> None:
    """As a gateway does: nothing is wrong with the request, or with the worker."""
    memory = MemoryRegistry()
    with served(memory) as url:
        registry = Registry(url, memory)
        keep(worker, [(registry.avro({"type": "string"}, "b"), b"1")], settings=registry.settings(side="key"))
        memory.always = httpx.Response(status, json={"message": "no"})
        answer = worker.ask("GET", PATH, params={"key": "b", "typed": "true"})
    assert (answer.status_code, said in message(answer)) == (code, True), message(answer)


@pytest.mark.parametrize("broken", ["no schema", '{"type": "record"}'])
def test_a_key_may_be_kept_in_a_schema_that_cannot_be_read(worker: RestWorker, broken: str) -> None:
    """So it is not said to be absent; one that is found is shown."""
    memory = MemoryRegistry()
    with served(memory) as url:
        registry = Registry(url, memory)
        keys = [registry.avro({"type": "string"}, "b"), registry.head(broken, subject="t") + b"\x02c"]
        keep(worker, [(key, b"1") for key in keys], settings=registry.settings(side="key"))
        shown = worker.ask("GET", PATH, params={"key": "b", "typed": "true", "text": "true"})
        assert (shown.status_code, [each["value"] for each in shown.json()["records"]]) == (200, ["1"])
        answer = worker.ask("GET", PATH, params={"key": "c", "typed": "true"})
    said = "Whether a key is kept is not known, as a schema of kept keys cannot be read: "
    assert (answer.status_code, said in message(answer)) == (500, True), message(answer)
    assert "Correct the schema in the registry" in message(answer)


@pytest.mark.parametrize(
    ("method", "error", "code"),
    [
        ("GET", StorageError("The store does not answer.", "See whether it is up."), 503),
        ("GET", UnreachableError("No broker answers.", "See whether they are up."), 503),
        ("GET", MachineError("The machine lacks memory.", "Free some."), 503),
        ("HEAD", RegistryError("The schema registry does not answer.", "See whether it is up."), 503),
        ("GET", DamagedFileError("runs/a is damaged.", "Put it back."), 500),
        ("GET", StorageRefusedError("The store refuses.", "Grant it."), 500),
        ("PUT", StorageError("The store does not answer.", "See whether it is up."), 500),
        ("POST", RegistryRefusedError("The schema registry refuses.", "Log in."), 502),
    ],
)
def test_an_outage_of_what_is_read_is_no_defect(method: str, error: KeyfoldError, code: int) -> None:
    """Whoever reads asks again later, as nothing was changed; a change may have been made, so that is looked at."""
    scope = {"type": "http", "method": method, "path": "/x", "query_string": b"", "headers": [], "server": ("h", 1)}
    answer = of_keyfold(Request(scope), error)
    assert (answer.status_code, "Retry-After" in answer.headers) == (code, code == 503)
    assert error.action in bytes(answer.body).decode()


def test_a_value_that_is_no_key_finds_nothing(worker: RestWorker) -> None:
    """However it is nested, and in a connector whose keys are bytes."""
    keep(worker, [(b'{"id":7}', b"1")], settings=OF_JSON)
    for key in ("[" * 10_000, "[" * 10_000 + "]" * 10_000, '{"id":8}', "9" * 5_000, "NaN", "\x00"):
        answer = worker.ask("GET", PATH, params={"key": key, "typed": "true"})
        assert (answer.status_code, answer.json()["records"]) == (200, []), answer.text
    worker.ask("DELETE", "/connectors/a")
    keep(worker, [(b'"x"', b"1")])
    assert worker.ask("GET", PATH, params={"key": "x", "typed": "true"}).json()["records"] == []


def test_a_damaged_file_is_not_decoded_for_the_forms_of_keys(worker: RestWorker) -> None:
    """To decode it may end the worker, and the keys that say how others look are of any file."""
    keep(worker, [(b'{"id":7}', b"1")], settings=OF_JSON)
    (path,) = [info.path for info in worker.location.sub("a").walk("runs") if info.path.endswith(".parquet")]
    data = bytearray(worker.location.sub("a").read(path))
    data[10] ^= 1
    worker.location.sub("a").write(path, bytes(data))
    answer = worker.ask("GET", PATH, params={"key": '{"id":8}', "typed": "true"})
    assert (answer.status_code, "is damaged: it is not what was written" in message(answer)) == (500, True)


def test_a_connector_that_keeps_nothing_has_no_record(worker: RestWorker) -> None:
    """It has not read anything yet."""
    worker.create("a")
    assert worker.ask("GET", PATH, params={"key": "k"}).json() == {"records": [], "ends": {}}


@pytest.mark.parametrize(
    ("params", "status", "said"),
    [
        ({}, 400, "The request has 0 keys."),
        ({"key": ["k"] * 101}, 400, "The request has 101 keys."),
        ({"key": "xy", "hex": "true"}, 400, 'The key "xy" is not in hexadecimal digits.'),
        ({"key": "00", "hex": "true", "typed": "true"}, 400, "1 keys in hexadecimal digits and typed=true."),
        ({"key": [str(key) for key in range(9)], "typed": "true"}, 400, "Send 1 to 8 as text with typed=true"),
        ({"key": "k", "partition": "-1"}, 400, 'The partition "-1" is no number.'),
        ({"key": "k", "partition": "7"}, 400, "Connector a keeps no partition 7."),
        ({"key": "k", "topic": "u"}, 400, "It keeps t-0"),
    ],
)
def test_a_request_that_cannot_be_answered_says_why(
    worker: RestWorker, params: dict[str, str | list[str]], status: int, said: str
) -> None:
    """And what to send instead."""
    keep(worker, [(b"a", b"1")])
    answer = worker.ask("GET", PATH, params=params)
    assert (answer.status_code, said in message(answer)) == (status, True), answer.text


def test_records_that_are_too_large_together_are_refused(worker: RestWorker) -> None:
    """Each is answered alone; what is read of them is bounded, whatever is kept."""
    keys = [b"a", b"b", b"c"]
    keep(worker, [(key, key * (12 << 20)) for key in keys], [(b"d", b"1")])
    answer = worker.ask("GET", PATH, params={"key": ["a", "b", "c"]})
    assert (answer.status_code, message(answer)) == (
        400,
        "The records of these keys take more than 33,554,432 bytes. Ask for fewer keys at a time.",
    )
    assert len(worker.ask("GET", PATH, params={"key": ["a", "d"]}).json()["records"]) == 2


@pytest.mark.parametrize("headers", [[200_000], [80_000, 80_000]], ids=["of a record", "over partitions"])
def test_headers_count_as_what_they_become(worker: RestWorker, headers: list[int]) -> None:
    """A few bytes each in a record, and an object each in an answer."""
    keep(worker, *([(b"a", b"1")] for _ in headers))
    target = RunTarget(storage=worker.location.sub("a"), prefix="2-j", max_bytes=1 << 20, is_indexed=True)
    logs = []
    for log, number in zip(worker.supervisor("a").catalog_state.logs, headers, strict=True):
        rows = [{**row(log.partition, 0, b"a", b"1"), "headers": [{"key": "", "value": None}] * number}]
        stats = list(writer.write([pa.RecordBatch.from_pylist(rows, record.RUN)], target, "ingest.write"))
        logs.append(replace(log, runs=(level0_run(0, 1, stats, 0),)))
    worker.supervisor("a").catalog_state = CatalogState(connector="a", logs=tuple(logs))
    assert "Ask for fewer keys" in message(worker.ask("GET", PATH, params={"key": "a"}))


def test_a_large_storage_without_an_index_is_not_read_for_a_request(worker: RestWorker) -> None:
    """A viewer cannot keep the worker reading; a partition that is small is answered."""
    keep(worker, [(b"a", b"1")], [(b"a", b"2")])
    supervisor = worker.supervisor("a")
    large, small = supervisor.catalog_state.logs
    unindexed = [replace(file, index=None, bytes=257 << 20) for file in large.runs[0].files]
    large = replace(large, runs=(replace(large.runs[0], files=tuple(unindexed)),))
    supervisor.catalog_state = CatalogState(connector="a", logs=(large, small))
    answer = worker.ask("GET", PATH, params={"key": "a"})
    assert (answer.status_code, "269,484,032 bytes of records there without an index" in message(answer)) == (400, True)
    assert len(worker.ask("GET", PATH, params={"key": "a", "partition": "1"}).json()["records"]) == 1


def test_a_request_for_more_files_than_it_may_verify_is_to_be_made_again(worker: RestWorker) -> None:
    """A worker that has just begun has verified none of those without an index; one that is small is answered."""
    keep(worker, [(b"a", b"1")], [(b"a", b"2")], is_indexed=False)
    supervisor = worker.supervisor("a")
    small, large = supervisor.catalog_state.logs
    files = tuple(replace(file, file_bytes=1 << 30) for file in large.runs[0].files)
    large = replace(large, runs=(replace(large.runs[0], files=files),))
    supervisor.catalog_state = CatalogState(connector="a", logs=(small, large))
    answer = worker.ask("GET", PATH, params={"key": "a"})
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "5")
    assert "at most 1,073,741,824 are for one look-up. Ask again" in message(answer)
    assert len(worker.ask("GET", PATH, params={"key": "a", "partition": "0"}).json()["records"]) == 1


def test_a_connector_that_does_not_exist_is_not_found(worker: RestWorker) -> None:
    """As with every other path of a connector."""
    assert worker.ask("GET", PATH, params={"key": "k"}).status_code == 404


def keep_many(worker: RestWorker, runs: int) -> None:
    """Makes the connector `a`, which keeps one record of the key `a` in each of so many partitions."""
    keep(worker, [(b"a", b"1")])
    (log,) = worker.supervisor("a").catalog_state.logs
    logs = tuple(replace(log, partition=number) for number in range(runs))
    worker.supervisor("a").catalog_state = CatalogState(connector="a", logs=logs)


@pytest.mark.parametrize(
    ("runs", "keys", "action"),
    [
        (300, 1, ""),
        (1_200, 100, "Ask for 80 at a time, or name a partition."),
        (5_000, 9, "Ask for 8 at a time, or name a partition."),
        (31_000, 1, "Name a topic or partition."),
    ],
)
def test_a_look_up_in_many_runs_is_bounded(worker: RestWorker, runs: int, keys: int, action: str) -> None:
    """It would take many seconds of a core; nothing is read for one that is refused."""
    keep_many(worker, runs)
    answer = worker.ask("GET", PATH, params={"key": [str(number) for number in range(keys)]}, timeout=60)
    said = message(answer) if answer.status_code == 400 else ""
    assert said.endswith(action), said
    assert bool(said) == bool(action)
