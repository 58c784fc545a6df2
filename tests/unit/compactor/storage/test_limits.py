"""What a store holds or answers is taken up to a limit, and refused with what to do above it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from operator import methodcaller
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from compactor.errors import ForeignContentError, StorageError
from compactor.storage.base import Storage
from compactor.storage.limits import ListLimits, StoreTimes
from compactor.storage.local import LocalStorage
from compactor.storage.locations import StoreOptions, open_storage
from tests.support.echo_server import echo_server, serving

FEW = ListLimits(entries=4_000)
PAGE = 1_000
MODIFIED = "2026-01-01T00:00:00.000Z"


def of_store(url: str, lists: ListLimits = FEW) -> Storage:
    options = {"region": "r", "access_key_id": "a", "secret_access_key": "s", "endpoint": url}
    times = StoreTimes(retry_s=0, lists=lists)
    return open_storage("s3://b/p", StoreOptions(s3=options, allow_http=frozenset(["s3"]), times=times))


def page_of(keys: list[str], *, is_last: bool) -> tuple[int, bytes]:
    """Returns a page of a list in S3's form."""
    objects = "".join(
        f"<Contents><Key>{key}</Key><LastModified>{MODIFIED}</LastModified><Size>1</Size><ETag>e</ETag></Contents>"
        for key in keys
    )
    more = (
        "" if is_last else f"<IsTruncated>true</IsTruncated><NextContinuationToken>{keys[-1]}</NextContinuationToken>"
    )
    return 200, f"<ListBucketResult>{objects}{more}</ListBucketResult>".encode()


@contextmanager
def endless_store(asked: list[str] | None = None) -> Iterator[str]:
    """Gives a store of which no list ends; `asked` gets each request's path."""
    count = iter(range(10**9))

    def answer(path: str, _: Mapping[str, str]) -> tuple[int, bytes]:
        if asked is not None:
            asked.append(path)
        return page_of([f"p/f/{next(count):020d}" for _ in range(PAGE)], is_last=False)

    with echo_server(answer) as url:
        yield url


Lists = Callable[[Storage], object]
LISTS = pytest.mark.parametrize("lists", [methodcaller(name, "f") for name in ("list", "walk", "unfinished")])


@LISTS
def test_a_list_without_end_is_given_up(lists: Lists) -> None:
    """After so many entries: a store that goes on would take all memory."""
    asked: list[str] = []
    with (
        endless_store(asked) as url,
        pytest.raises(ForeignContentError, match="s3://b/p/f holds more than 4,000 files"),
    ):
        lists(of_store(url))
    assert len(asked) <= 6


@LISTS
def test_a_list_of_empty_pages_is_given_up(lists: Lists) -> None:
    """They count for nothing, so time ends it; it may be better later."""
    empty = b"<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken>t</NextContinuationToken>"
    with (
        echo_server(lambda *_: (200, empty + b"</ListBucketResult>")) as url,
        pytest.raises(StorageError, match=r"did not end within 0\.5 s") as caught,
    ):
        lists(of_store(url, ListLimits(seconds=0.5)))
    assert caught.value.retriable


def test_whether_a_folder_is_there_takes_a_page() -> None:
    """Its first name says it."""
    asked: list[str] = []

    def answer(path: str, _: Mapping[str, str]) -> tuple[int, bytes]:
        asked.append(path)
        is_list = "list-type" in path
        return page_of([f"p/f/{number:020d}" for number in range(PAGE)], is_last=False) if is_list else (404, b"")

    with echo_server(answer) as url:
        assert of_store(url).exists("f")
    assert len(asked) == 2


def test_the_files_of_a_large_folder_are_passed_over() -> None:
    """The names in a folder do not cost a page for each thousand files that lie deeper."""
    keys = sorted(
        [f"p/t/2026{taken}/data/{number:05d}" for taken in "abc" for number in range(5 * PAGE)]
        + ["p/t/2026a.json", "p/t/LATEST", "p/t/zz"]
    )
    asked: list[str] = []

    def answer(path: str, _: Mapping[str, str]) -> tuple[int, bytes]:
        query = parse_qs(urlsplit(path).query)
        asked.append(path)
        after = query.get("continuation-token", query.get("start-after", [""]))[0]
        left = [key for key in keys if key > after and key.startswith(query["prefix"][0])]
        return page_of(left[:PAGE], is_last=len(left) <= PAGE)

    with echo_server(answer) as url:
        assert of_store(url, ListLimits()).list("t") == ["2026a", "2026a.json", "2026b", "2026c", "LATEST", "zz"]
    assert len(asked) == 4


@LISTS
@pytest.mark.parametrize("place", ["f/{}", "f/{}/deep"])
def test_a_folder_with_too_many_files_is_refused(lists: Lists, place: str, tmp_path: Path) -> None:
    """As a store with too many objects is; so many as are allowed are listed."""
    storage = LocalStorage(str(tmp_path), lists=ListLimits(entries=6)).sub("s")
    for number in range(3):
        storage.create(place.format(number), b"")
    lists(storage)
    for number in range(3, 7):
        storage.create(place.format(number), b"")
    with pytest.raises(ForeignContentError, match=r"s/f.* holds more than 6 files") as caught:
        lists(storage)
    assert (caught.value.retriable, "move away what keyfold did not make" in caught.value.action) == (False, True)


def test_a_walk_goes_through_no_link(tmp_path: Path) -> None:
    """One may lead to any folder, or round in a circle."""
    storage = LocalStorage(str(tmp_path))
    storage.create("f/a/b", b"1")
    (tmp_path / "f/a/round").symlink_to(tmp_path / "f")
    (tmp_path / "f/away").symlink_to(tmp_path / "none")
    assert [info.path for info in storage.walk("f")] == ["f/a/b"]


def test_a_large_object_is_not_read() -> None:
    """Its size stands before its content."""
    sent = {"Last-Modified": "Thu, 26 Nov 2026 00:00:00 GMT", "ETag": "e", "Content-Length": str(900 << 20)}
    with (
        echo_server(lambda *_: (200, b"", sent)) as url,
        pytest.raises(ForeignContentError, match=r"s3://b/p/x has 943,718,400 bytes or more: .* 1,048,576 at most"),
    ):
        of_store(url).read("x")


@contextmanager
def store_of_pieces(sent: list[int]) -> Iterator[str]:
    """Gives a store that says that an object has ten bytes, and sends pieces of it until the reader goes."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self.send_response(200)
            of_object = {"Last-Modified": "Thu, 26 Nov 2026 00:00:00 GMT", "ETag": "e", "Content-Length": "10"}
            for name, value in {**of_object, "Transfer-Encoding": "chunked"}.items():
                self.send_header(name, value)
            self.end_headers()
            for _ in range(256):
                try:
                    self.wfile.write(b"100000\r\n" + bytes(1 << 20) + b"\r\n")
                except OSError:
                    return
                sent.append(1)

        def log_message(self, *_: object) -> None:
            """Prints nothing."""

    with serving(Handler) as url:
        yield url


def test_an_object_that_is_longer_than_was_said_is_not_read() -> None:
    """What comes is counted: a store may say anything of it."""
    sent: list[int] = []
    with store_of_pieces(sent) as url, pytest.raises(StorageError):
        of_store(url).read("x")
    assert len(sent) < 64


def test_a_large_file_is_not_read(tmp_path: Path) -> None:
    """Nor is one that is as large as allowed refused."""
    storage = LocalStorage(str(tmp_path))
    with (tmp_path / "x").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(ForeignContentError, match="x has 1,099,511,627,776 bytes or more"):
        storage.read("x")
    assert not storage.replace("x", b"1", b"2")
    storage.delete_own(["x"], lambda _: True)
    assert storage.list("") == ["x"]
    storage.write("y", b"12345")
    assert storage.read("y", 5) == b"12345"


def test_what_was_just_written_has_the_same_limit() -> None:
    """An object that is remembered is read as any other."""
    answers = {"ETag": "e", "Last-Modified": "Thu, 26 Nov 2026 00:00:00 GMT"}
    with echo_server(lambda *_: (200, b"", answers)) as url:
        storage = of_store(url)
        with storage.open_output("x") as stream:
            stream.write(b"12345")
        assert storage.read("x", 5) == b"12345"
        with pytest.raises(ForeignContentError):
            storage.read("x", 4)


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_what_is_no_file_is_not_read(make: Callable[[Path], None], tmp_path: Path) -> None:
    """A pipe would be waited for until somebody writes into it."""
    make(tmp_path / "x")
    storage = LocalStorage(str(tmp_path))
    for read in (storage.read, storage.open_input):
        with pytest.raises(ForeignContentError, match="x is no file, but a folder, a pipe or a device"):
            read("x")
