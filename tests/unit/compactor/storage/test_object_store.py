"""An object store that fails, is slow, loses answers or hangs: what a Storage promises holds, or is refused."""

from __future__ import annotations

import re
import secrets
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import httpx
import obstore
import pytest
from msgspec.structs import replace
from obstore import exceptions

from compactor.errors import MissingFileError, StorageError, UnsupportedStorageError
from compactor.storage.base import Storage
from compactor.storage.limits import MOST_BYTES, SMALL_BYTES, StoreTimes
from compactor.storage.locations import StoreOptions, open_storage
from compactor.storage.object_client import PART_BYTES, ObjectClient, ObjectState
from compactor.storage.object_store import ObjectStorage
from compactor.storage.request_counts import REQUESTS
from tests.support.cli import environment
from tests.support.kafka import wait_until
from tests.support.stores.faulty_proxy import NO_FAULTS, Faults, FaultyProxy, Request, faulty_proxy
from tests.support.stores.running import BUCKET, RunningStore

RACERS = 20
COMPARING = {"moto", "azurite"}
"""Stores that replace an object only if it is still what was seen: S3Proxy refuses to, Google's mock does not look."""

QUICK = pytest.mark.parametrize("times", [StoreTimes(retry_s=1)])
"""Requests that fail are given up soon."""


@pytest.fixture
def store(moto: RunningStore) -> RunningStore:
    return moto


@pytest.fixture
def proxy(store: RunningStore) -> Iterator[FaultyProxy]:
    """A proxy of its own, so that clients, which are kept by their endpoint, are new for each test."""
    with faulty_proxy(store.url) as running:
        yield running


@pytest.fixture
def times() -> StoreTimes:
    """The product's; a test that needs others is parametrized with them."""
    return StoreTimes()


@pytest.fixture
def storage(store: RunningStore, proxy: FaultyProxy, times: StoreTimes) -> ObjectStorage:
    """A new folder of the store, through the proxy."""
    options = replace(store.options(proxy.url), times=times)
    opened = open_storage(f"{store.location}/{secrets.token_hex(8)}", options)
    assert isinstance(opened, ObjectStorage)
    return opened


def _when_locks_are_over(storage: ObjectStorage, store: RunningStore, proxy: FaultyProxy) -> ObjectStorage:
    """The same folder, in a process to which each lock is one that was not renewed for long."""
    options = replace(store.options(proxy.url), times=StoreTimes(lease_ms=-1))
    opened = open_storage(storage.location, options)
    assert isinstance(opened, ObjectStorage)
    return opened


def once(concerned: Callable[[Request], bool]) -> Callable[[Request], bool]:
    """Concerns the first such request, and no later one."""
    left = [True]
    return lambda request: concerned(request) and (left.pop() if left else False)


def puts(request: Request) -> bool:
    """Concerns requests that make or replace an object."""
    return request.method == "PUT"


def begins(request: Request) -> bool:
    """Concerns the request that begins an upload in parts; Azure has none."""
    return request.method == "POST" and "?uploads" in request.path


def sends(request: Request) -> bool:
    """Concerns requests that upload a part: in S3 and Google's store, in Azure."""
    return request.method == "PUT" and ("partNumber=" in request.path or "comp=block&" in request.path)


def completes(request: Request) -> bool:
    """Concerns the request that completes an upload in parts: in S3 and Google's store, in Azure."""
    return (request.method == "POST" and "uploadId=" in request.path) or "comp=blocklist" in request.path


def uploads(storage: Storage, proxy: FaultyProxy) -> list[tuple[str, str]]:
    """Returns key and id of each upload in parts that is open below `storage`; none on Azure, which has blocks.

    Others of the bucket stay open for good: where the answer to the request that begins one was lost, nobody knows it.
    """
    if storage.location.startswith("az:"):
        return []
    answer = httpx.get(f"{proxy.url}/{BUCKET}?uploads")
    assert answer.status_code == httpx.codes.OK, answer.text
    keys, ids = (re.findall(f"<{name}>(.*?)</{name}>", answer.text) for name in ("Key", "UploadId"))
    folder = storage.location.partition(f"{BUCKET}/")[2]
    return [(key, each) for key, each in zip(keys, ids, strict=True) if key.startswith(f"{folder}/")]


def test_requests_pass_as_they_are(storage: Storage, proxy: FaultyProxy) -> None:
    """Without faults the proxy is not seen; otherwise the tests below would try it, and not the storage."""
    assert storage.create("a", b"1")
    storage.write("b/c", b"x" * 100_000)
    assert [(info.path, info.bytes) for info in storage.walk("")] == [("a", 1), ("b/c", 100_000)]
    assert storage.read("b/c") == b"x" * 100_000
    storage.delete_all(["a", "b/c"])
    assert storage.list("") == []
    assert sum(proxy.counts.values()) == 0


def test_a_create_whose_answer_is_lost_is_true_once(storage: Storage, proxy: FaultyProxy) -> None:
    """It finds what it has made, and knows it by its mark; whoever comes later has not made it."""
    proxy.faults = Faults(lost=1, concerns=once(puts))
    assert storage.create("catalog/1", b"mine")
    assert proxy.counts["lost"] == 1
    assert not storage.create("catalog/1", b"mine")
    assert storage.read("catalog/1") == b"mine"


def test_a_create_that_lost_and_whose_answer_is_lost_is_false(storage: Storage, proxy: FaultyProxy) -> None:
    """Another has made the object; that this was not heard changes nothing, also where the contents are equal."""
    assert storage.create("catalog/1", b"same")
    proxy.faults = Faults(lost=1, concerns=once(puts))
    assert not storage.create("catalog/1", b"same")
    assert proxy.counts["lost"] == 1


@pytest.mark.parametrize("lost", [0, 0.3])
def test_racing_creates_have_one_winner(storage: Storage, proxy: FaultyProxy, lost: float) -> None:
    """Of twenty that create an object at once one has made it, and reads its own; answers may be lost meanwhile."""
    proxy.faults = Faults(lost=lost)
    barrier = Barrier(RACERS)

    def race(number: int) -> bool:
        barrier.wait(30)
        return storage.create("catalog/1", b"%d" % number)

    with ThreadPoolExecutor(RACERS) as racers:
        made = list(racers.map(race, range(RACERS)))
    assert sum(made) == 1
    assert storage.read("catalog/1") == b"%d" % made.index(True)
    assert (proxy.counts["lost"] > 0) == (lost > 0)


@pytest.mark.parametrize(
    "faults",
    [
        pytest.param(Faults(lost=0.1), id="lost answers"),
        pytest.param(Faults(refused=0.1, statuses=(503, 429)), id="503 and 429", marks=pytest.mark.long),
        pytest.param(Faults(delay_s=0.005), id="delays", marks=pytest.mark.long),
    ],
)
def test_operations_are_those_of_a_healthy_store(storage: Storage, proxy: FaultyProxy, faults: Faults) -> None:
    """Where a tenth of all requests is refused, or done without an answer, each operation does what it promises."""
    proxy.faults = faults
    large = secrets.token_bytes(2 * PART_BYTES + 5)
    for turn in range(10):
        assert storage.create(f"{turn}/created", b"1")
        assert not storage.create(f"{turn}/created", b"2")
        storage.write(f"{turn}/written", b"old")
        storage.write(f"{turn}/written", b"new")
        if storage.copies_files:
            storage.copy(f"{turn}/written", f"copies/{turn}")
            assert storage.read(f"copies/{turn}") == b"new"
            with pytest.raises(MissingFileError):
                storage.copy(f"{turn}/nothing", f"copies/{turn}")
        with storage.open_output(f"{turn}/runs/small") as stream:
            stream.write(b"small")
        assert storage.list(str(turn)) == ["created", "runs", "written"]
        assert [info.bytes for info in storage.walk(str(turn))] == [1, 5, 3]
        assert [storage.read(f"{turn}/{name}") for name in ("created", "written", "runs/small")] == [
            *(b"1", b"new", b"small")
        ]
        assert storage.exists(f"{turn}/created")
        assert not storage.exists(f"{turn}/nothing")
        with pytest.raises(MissingFileError):
            storage.read(f"{turn}/nothing")
        storage.delete_all([f"{turn}/created", f"{turn}/nothing"])
        storage.delete_folder(f"{turn}/runs")
        assert storage.list(str(turn)) == ["written"]
        lock = storage.lock(f"{turn}/owner.lock")
        assert lock is not None
        lock.write(b"me")
        assert (storage.lock(f"{turn}/owner.lock"), storage.locked_by(f"{turn}/owner.lock")) == (None, b"me")
        lock.release()
    with storage.open_output("large") as stream:
        for start in range(0, len(large), 1_000_000):
            stream.write(large[start : start + 1_000_000])
    with storage.open_input("large") as source:
        assert source.read() == large
    assert not faults.refused or proxy.counts["refused"] > 10
    assert not faults.lost or proxy.counts["lost"] > 10


@pytest.mark.parametrize("lost", [0, 0.3])
@pytest.mark.parametrize("before", ["absent", "over"])
def test_of_many_that_take_a_lock_at_once_one_has_it(
    store: RunningStore,
    storage: ObjectStorage,
    proxy: FaultyProxy,
    monkeypatch: pytest.MonkeyPatch,
    before: str,
    lost: float,
) -> None:
    """Whether it was absent, or its holder has not renewed it for long; answers may be lost meanwhile.

    Of a store that compares nothing several may get it where it was over; all but one learn that they do not have it.
    """
    first = storage.lock("owner.lock") if before == "over" else None
    barrier = Barrier(RACERS)
    state = ObjectClient.state
    seen = threading.local()

    def looked(client: ObjectClient, key: str) -> ObjectState | None:
        found = state(client, key)
        if not hasattr(seen, "first"):
            seen.first = True
            barrier.wait(30)
        return found

    later = _when_locks_are_over(storage, store, proxy)
    monkeypatch.setattr(ObjectClient, "state", looked)
    proxy.faults = Faults(lost=lost)
    with ThreadPoolExecutor(RACERS) as racers:
        taken = [one for one in racers.map(lambda _: later.lock("owner.lock"), range(RACERS)) if one is not None]
    monkeypatch.undo()
    proxy.faults = NO_FAULTS
    assert len(taken) == 1 or (before == "over" and store.name not in COMPARING)
    current = [one for one in taken if one.is_current()]
    assert len(current) == 1
    current[0].write(b"me")
    assert storage.locked_by("owner.lock") == b"me"
    if first is not None:
        first.write(b"not me")
        assert (first.is_current(), storage.locked_by("owner.lock")) == (False, b"me")
        first.release()
    for one in taken:
        one.release()
    assert storage.locked_by("owner.lock") is None


@pytest.mark.parametrize("says", ["501 Not Implemented", "400 Bad Request"])
def test_a_store_that_cannot_compare_is_looked_at(
    store: RunningStore, storage: ObjectStorage, proxy: FaultyProxy, monkeypatch: pytest.MonkeyPatch, says: str
) -> None:
    """Its locks are renewed all the same, and taken once they are over; what is another's by then is left alone."""
    put: Any = obstore.put

    def refusing(*arguments: Any, mode: Any = None, **more: Any) -> Any:
        if isinstance(mode, dict):
            raise exceptions.GenericError(f"Server returned non-2xx status code: {says}")
        return put(*arguments, **more, **({} if mode is None else {"mode": mode}))

    monkeypatch.setattr(obstore, "put", refusing)
    first = storage.lock("owner.lock")
    assert first is not None
    first.write(b"first")
    assert storage.locked_by("owner.lock") == b"first"
    second = _when_locks_are_over(storage, store, proxy).lock("owner.lock")
    assert second is not None
    first.write(b"first again")
    assert (first.is_current(), second.is_current()) == (False, True)
    client, key = storage._client, storage._at("owner.lock")
    seen = client.state(key)
    assert seen is not None
    second.write(b"second")
    assert not client.replace(key, b"late", {}, seen)
    for one in (first, second):
        one.release()


ASKS: dict[str, Callable[[Storage], object]] = {
    "read": lambda storage: storage.read("a"),
    "create": lambda storage: storage.create("a", b"1"),
    "write": lambda storage: storage.write("a", b"1"),
    "copy": lambda storage: storage.copy("a", "b") if storage.copies_files else storage.write("b", b""),
    "list": lambda storage: storage.list(""),
    "walk": lambda storage: storage.walk(""),
    "delete": lambda storage: storage.delete_all(["a", "b"]),
    "exists": lambda storage: storage.exists("a"),
    "open": lambda storage: storage.open_input("a"),
    "open-large": lambda storage: storage.open_input("a", 2 << 20),
}
"""Each thing that a storage asks of its store."""


@pytest.mark.parametrize("times", [StoreTimes(connect_s=1, request_s=1, retry_s=2)])
def test_a_store_that_never_answers_is_an_error(storage: Storage, proxy: FaultyProxy, times: StoreTimes) -> None:
    """No longer than a request and its repetitions may take together, with the object's URL and what to do."""
    proxy.faults = Faults(hangs=True)

    def taken_s(ask: Callable[[Storage], object]) -> float:
        began = time.monotonic()
        with pytest.raises(StorageError, match=rf"{BUCKET}/.*healthy"):
            ask(storage)
        return time.monotonic() - began

    with ThreadPoolExecutor(len(ASKS)) as askers:  # each waits until its time is over, so all of them do at once
        taken = dict(zip(ASKS, askers.map(taken_s, ASKS.values()), strict=True))
    most_s = 5 * (times.request_s + times.retry_s)  # this machine may have other work
    assert {name: seconds for name, seconds in taken.items() if seconds >= most_s} == {}
    assert proxy.counts["hangs"] >= len(ASKS)


@pytest.mark.parametrize("times", [StoreTimes(connect_s=1, request_s=30, small_s=1, retry_s=1)])
def test_what_is_small_is_given_up_sooner(storage: Storage, proxy: FaultyProxy) -> None:
    """All that a step asks before and after its files: a pause waits for it, and other requests of the connector do."""
    storage.write("catalog", bytes(10))
    assert storage.read("catalog", MOST_BYTES) == bytes(10)
    storage.write("large", bytes(SMALL_BYTES + 1))
    assert storage.read("large", MOST_BYTES) == bytes(SMALL_BYTES + 1)
    proxy.faults = Faults(hangs=True)
    small = [ask for name, ask in ASKS.items() if "large" not in name and name != "copy"]
    asked = [*small, lambda storage: storage.read("catalog", MOST_BYTES)]

    def fails(ask: Callable[[Storage], object]) -> bool:
        with pytest.raises(StorageError, match="healthy"):
            ask(storage)
        return True

    with ThreadPoolExecutor(len(asked)) as askers:
        assert all(askers.map(fails, asked, timeout=20))


@QUICK
def test_a_store_that_does_not_copy_is_asked_once(proxy: FaultyProxy, storage: ObjectStorage) -> None:
    """It answers 501 to each copy; what would be copied is written then, and no further copy is tried."""
    if not storage.copies_files:
        pytest.skip("Azure is never asked to copy")
    storage.write("a", b"bytes")
    proxy.faults = Faults(refused=1, statuses=(501,), concerns=lambda request: request.method == "PUT")
    assert storage.copies_files
    with pytest.raises(StorageError, match="copy"):
        storage.copy("a", "b")
    assert not storage.copies_files
    assert not storage.sub("x").copies_files


def test_a_copy_is_one_request_and_no_bytes_of_this_process(storage: Storage) -> None:
    """It is counted as what it costs, a put; what this process remembers of an object that is replaced is forgotten."""
    if not storage.copies_files:
        pytest.skip("Azure may answer a copy before it is complete")
    for name in ("a", "b"):
        with storage.open_output(name) as stream:
            stream.write(name.encode() * 1000)
    before = REQUESTS.values()
    storage.copy("a", "b")
    assert REQUESTS.values() - before == {"put": 1}
    assert storage.read("b") == b"a" * 1000


def test_the_host_of_abfss_names_the_account() -> None:
    """As Hadoop's client reads it; containers of the same name in two accounts are two buckets."""
    first, second = (open_storage(f"abfss://box@{one}.dfs.core.windows.net/x") for one in ("first", "second"))
    assert isinstance(first, ObjectStorage)
    assert isinstance(second, ObjectStorage)
    assert dict(first.bucket.options)["account_name"] == "first"
    assert first.bucket != second.bucket
    assert first.location == "az://box/x"


@pytest.mark.parametrize(("text", "allowed"), [("TRUE", True), (" 1 ", True), ("false", False), ("", False)])
def test_endpoints_without_tls_are_allowed_by_the_clouds_own_variable(text: str, allowed: bool) -> None:
    """Each store has its own; another cloud's says nothing of it."""
    s3 = open_storage("s3://box/x", environ={"AWS_ALLOW_HTTP": text})
    azure = open_storage("abfss://box@account.dfs.core.windows.net/x", environ={"AWS_ALLOW_HTTP": text})
    assert isinstance(s3, ObjectStorage)
    assert isinstance(azure, ObjectStorage)
    assert (s3.bucket.allow_http, azure.bucket.allow_http) == (allowed, False)


def test_azure_copies_nothing() -> None:
    """Its copies may go on after the answer, and fail then; it is not asked."""
    storage = open_storage("az://box/x", StoreOptions(az={"account_name": "nobody"}))
    assert not storage.copies_files
    with pytest.raises(UnsupportedStorageError, match="az://box/x/a"):
        storage.copy("a", "b")


@QUICK
def test_an_upload_in_parts_that_is_cut_off_leaves_no_object(storage: Storage, proxy: FaultyProxy) -> None:
    """Neither where its block fails, nor where a part or the last request is refused; what was sent is given up."""
    data = bytes(PART_BYTES)

    def write(*, fails: bool = False) -> None:
        with storage.open_output("runs/large") as stream:
            for _ in range(3):
                stream.write(data)
            if not storage.location.startswith("az:"):
                wait_until(lambda: uploads(storage, proxy), "the upload has begun")
            assert not fails

    with pytest.raises(AssertionError):
        write(fails=True)
    assert not uploads(storage, proxy)
    for concerned in (sends, completes):
        proxy.faults = Faults(refused=1, concerns=concerned)
        with pytest.raises(StorageError, match="runs/large"):
            write()
        assert proxy.counts["refused"] > 1
        proxy.faults = NO_FAULTS
        assert storage.walk("") == []
        assert not uploads(storage, proxy)
    write()
    assert [info.bytes for info in storage.walk("")] == [3 * PART_BYTES]


@QUICK
def test_an_upload_that_the_store_has_dropped_is_no_missing_bucket(
    storage: Storage, store: RunningStore, proxy: FaultyProxy
) -> None:
    """A rule of a bucket may end uploads that are under way: the error says so, and another try is whole."""
    if storage.location.startswith("az:"):
        pytest.skip("Azure has blocks, and no uploads that could be dropped")

    def write(*, drops: bool) -> None:
        with storage.open_output("runs/large") as stream:
            stream.write(bytes(2 * PART_BYTES))
            if drops:
                wait_until(lambda: uploads(storage, proxy), "the upload has begun")
                ((key, number),) = uploads(storage, proxy)
                httpx.delete(f"{store.url}/{BUCKET}/{key}?uploadId={number}").raise_for_status()
            stream.write(bytes(PART_BYTES))

    with pytest.raises(StorageError, match="runs/large") as raised:
        write(drops=True)
    assert "no longer knows this upload" in raised.value.action
    write(drops=False)
    assert [info.bytes for info in storage.walk("")] == [3 * PART_BYTES]


@pytest.mark.parametrize("step", [begins, sends, completes])
def test_an_upload_in_parts_whose_answer_is_lost_is_there(
    storage: Storage, proxy: FaultyProxy, step: Callable[[Request], bool]
) -> None:
    """Also where the last one is: then the upload is over when it is asked for again, and the object stands there."""
    if step is begins and storage.location.startswith("az:"):
        pytest.skip("an upload to Azure begins with its first part")
    proxy.faults = Faults(lost=1, concerns=once(step))
    with storage.open_output("runs/large") as stream:
        for _ in range(3):
            stream.write(bytes(PART_BYTES))
    assert proxy.counts["lost"] == 1
    assert [info.bytes for info in storage.walk("")] == [3 * PART_BYTES]


@QUICK
def test_an_upload_in_parts_whose_last_answers_are_all_lost_is_there(storage: Storage, proxy: FaultyProxy) -> None:
    """A store may also say that the upload, which it has completed, is not there: the object is what counts."""
    proxy.faults = Faults(lost=1, concerns=completes)
    with storage.open_output("runs/large") as stream:
        stream.write(bytes(PART_BYTES + 1))
    assert proxy.counts["lost"] > 1
    assert [info.bytes for info in storage.walk("")] == [PART_BYTES + 1]


def test_a_bucket_that_ignores_conditions_is_refused_by_name(storage: ObjectStorage, proxy: FaultyProxy) -> None:
    """A store that overlooks If-None-Match would have two owners: found out before anything starts."""
    if storage.location.startswith("az:"):
        pytest.skip("a signature covers this header in Azure: a proxy cannot leave it out")
    storage.check_creates()
    proxy.faults = Faults(without=frozenset({"if-none-match", "x-goog-if-generation-match"}))
    with pytest.raises(UnsupportedStorageError, match=rf"{storage.location}.*If-None-Match"):
        storage.check_creates()
    assert storage.unfinished("") == []


def test_a_bucket_that_is_not_there_is_said_at_once(store: RunningStore, proxy: FaultyProxy) -> None:
    """By the request that found it out, which is not sent again: nothing comes of waiting."""
    seen: list[Request] = []

    def sees(request: Request) -> bool:
        seen.append(request)
        return False

    proxy.faults = Faults(concerns=sees)
    scheme = store.location.partition("://")[0]
    absent = open_storage(f"{scheme}://absent-{secrets.token_hex(4)}/x", store.options(proxy.url))
    assert isinstance(absent, ObjectStorage)
    with pytest.raises(StorageError, match=r"^Could not create .*absent-") as caught:
        absent.check_creates()
    assert caught.value.action == "Make the bucket, or correct the location; keyfold makes none."
    assert len([one for one in seen if puts(one)]) == 1


def test_a_store_without_tls_is_not_asked_unless_that_is_allowed(store: RunningStore) -> None:
    """What the environment says of the endpoint is not in the worker file, which is checked for this."""
    options = replace(store.options(), allow_http=frozenset())
    began = time.monotonic()
    with pytest.raises(StorageError) as caught:
        open_storage(f"{store.location}/x", options).create("a", b"")
    assert "allow.http" in caught.value.action
    assert time.monotonic() - began < options.times.retry_s / 2


def test_the_environment_allows_a_store_without_tls(store: RunningStore) -> None:
    """As it names the endpoint and the credentials: a reader of snapshots has no worker file."""
    if not store.location.startswith("s3:"):
        pytest.skip("tried with the variables of AWS; those of the other stores are read by the same line")
    open_storage(f"{store.location}/env", store.options()).write("a", b"1")
    named = {"ENDPOINT_URL": store.url, "REGION": "us-east-1", "ACCESS_KEY_ID": "k", "SECRET_ACCESS_KEY": "s"}
    variables = {f"AWS_{name}": value for name, value in (named | {"ALLOW_HTTP": "true"}).items()}
    script = f"from compactor.storage.locations import open_storage as o; print(o('{store.location}/env').read('a'))"
    python = [sys.executable, "-c", script]
    done = subprocess.run(python, env=environment(**variables), capture_output=True, text=True, check=False, timeout=60)
    assert done.stdout.strip() == "b'1'", done.stderr[-2000:]


def test_a_list_that_is_late_comes_right(storage: Storage, proxy: FaultyProxy) -> None:
    """The proxy leaves out what was just made, files and folders, and only that; so the tests with it try something."""
    storage.write("old/1", b"")
    proxy.faults = Faults(lists_late_s=600)
    assert (storage.list(""), storage.list("old"), storage.walk("")) == ([], [], [])
    proxy.faults = NO_FAULTS
    assert (storage.list(""), storage.list("old")) == (["old"], ["1"])
