"""Talks to one bucket of an object store: S3, Google Cloud Storage, Azure Blob Storage and what speaks their protocols.

The one place that knows obstore. Every method raises StorageError with the object's URL and what to do; a request that
the store throttles (503, 429) or does not answer is sent again, with growing pauses, for up to `retry_s`. A store
that takes a request and never answers is given up after `small_s`, or `request_s` if many bytes go to or fro.

A create is different: if its answer was lost, to send it again would find the object that it has made itself. So it is
sent once at a time, and carries a random mark among the object's attributes: by the mark the object is known as its
own. A store may also answer that the object exists if two creates meet and neither is done (S3: 409).
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct
from tenacity import RetryError, Retrying, retry_if_result, stop_after_delay, wait_random_exponential

from compactor.errors import DEFECT, MissingFileError, StorageError, StorageRefusedError, UnsupportedStorageError
from compactor.storage.base import refused
from compactor.storage.limits import SMALL_BYTES, UNHEALTHY, StoreTimes, check_size
from compactor.storage.object_list import ObjectList
from compactor.storage.request_counts import REQUESTS
from compactor.storage.store_errors import StoreCredentials, brief

if TYPE_CHECKING:
    from obstore import WritableFile
    from obstore.store import ObjectStore

PART_BYTES: Final = 8 << 20
"""What is larger is uploaded in parts of so many bytes."""

_DELETE_MAX: Final = 256
"""As many as Azure takes in a request; S3 takes 1,000."""
_MARK: Final = "keyfoldcreate"
"""The attribute that says which create has made an object; Azure takes letters and digits only."""

_DENIED: Final = "Let the worker's credentials list, read, write and delete there; docs/stores.md has the rights."
_NO_CREATES: Final = "Choose a store that creates an object only if it is absent (S3: If-None-Match)."
_NO_RANGE: Final = "416 Range Not Satisfiable"
_COMPARES_NOT: Final = ("501 Not Implemented", "400 Bad Request")
"""What stores answer that create an object if it is absent, and compare nothing else: S3Proxy with the second."""
_NO_COPIES: Final = re.compile(r"\b501\b|NotImplemented|Not Implemented")
"""What stores without copies answer."""
_NOT_SENT: Final = "builder error"
"""How obstore's message ends if it made no request, as it may not or cannot ask that URL."""
_NO_URL: Final = (
    "See whether the store's endpoint is a URL with https://; one without TLS also needs storage.s3.allow.http "
    "(azure, gcs), or AWS_ALLOW_HTTP where the environment names it."
)
_UNKNOWN: Final = "Make the bucket, or correct the location; keyfold makes none."
_UPLOAD_GONE: Final = (
    "The store no longer knows this upload, which is made anew; see whether the bucket is there, and whether a rule "
    "of it ends uploads within the hour."
)


class StoreBucket(Struct, frozen=True):
    """A bucket (in Azure: a container) and how it is reached.

    `scheme` is s3, gs or az; `options` are obstore's names and values, secrets among them: never printed.
    """

    scheme: str
    name: str
    options: tuple[tuple[str, str], ...] = ()
    allow_http: bool = False
    times: StoreTimes = StoreTimes()

    @property
    def url(self) -> str:
        """The bucket as messages show it."""
        return f"{self.scheme}://{self.name}"

    def __repr__(self) -> str:
        return f"StoreBucket({self.url})"


class ObjectInfo(Struct, frozen=True):
    """An object: its key, size in bytes, and when it was made by the store's clock, in ms."""

    key: str
    bytes: int
    modified_ms: int


class ObjectState(Struct, frozen=True):
    """An object as it was when it was looked at: its attributes, when it was made by the store's clock, its version.

    `e_tag` and `version` are what the store compares in `replace`.
    """

    attributes: Mapping[str, str]
    modified_ms: int
    e_tag: str | None = None
    version: str | None = None


class OutOfRangeError(StorageError):
    """The object ends before the range that was asked for."""


class ObjectClient:
    """Reads and writes the objects of a bucket by their keys."""

    def __init__(self, bucket: StoreBucket) -> None:
        self.times = bucket.times
        self._bucket = bucket
        retry_timeout = timedelta(seconds=bucket.times.retry_s)
        retried = {"max_retries": 100, "retry_timeout": retry_timeout}
        self._large, self._small = (_open(bucket, retried, s) for s in (bucket.times.request_s, bucket.times.small_s))
        self._refuses_copies = False
        """Whether the store has answered a copy with "not implemented"; set by `copy`, for the life of the process."""
        self._credentials = StoreCredentials(bucket.options, os.environ)
        # Send a create once, by whether it is large: only `create` knows whether another try is right.
        once = {"max_retries": 0, "retry_timeout": retry_timeout}
        self._once = [_open(bucket, once, s) for s in (bucket.times.small_s, bucket.times.request_s)]

    def _store(self, size: int) -> ObjectStore:
        """Returns what asks for, or sends, up to `size` bytes."""
        return self._large if size > SMALL_BYTES else self._small

    def url(self, key: str) -> str:
        """Returns the object as messages show it."""
        return f"{self._bucket.url}/{key}"

    def get(self, key: str, at_most: int) -> bytes:
        """Reads a whole object; MissingFileError if it is absent, ForeignContentError if it has more bytes.

        Most are small, whatever is allowed: a store that hangs is noticed by the beginning, in the time of a small one.
        """
        if at_most > SMALL_BYTES:
            data, size = self.get_start(key, SMALL_BYTES)
            if size <= SMALL_BYTES:
                return data
        return self._get(key, {}, at_most)[0]

    def get_start(self, key: str, length: int) -> tuple[bytes, int]:
        """Reads the first `length` bytes of an object, or all if it has less; returns its size too."""
        try:
            return self._get(key, {"range": (0, length)}, length)
        except OutOfRangeError:  # it is empty
            return self._get(key, {}, length)

    def get_range(self, key: str, start: int, end: int) -> tuple[bytes, int]:
        """Reads the bytes [start, end) of an object, fewer if it ends before; returns its size too.

        Raises MissingFileError; OutOfRangeError if `start` is not below the object's size.
        """
        return self._get(key, {"range": (start, end)}, end - start)

    def _get(self, key: str, options: Any, at_most: int) -> tuple[bytes, int]:
        """Reads an answer of up to `at_most` bytes, counted as they come: what a store says of them may be wrong."""
        import obstore

        with self._errors("read", key, missing=True):
            answer = obstore.get(self._store(at_most), key, options=options)
            size = answer.meta["size"]
            if "range" not in options:
                check_size(self.url(key), size, at_most)
            data = bytearray()
            for piece in answer.stream(max(1, min(at_most, PART_BYTES))):
                check_size(self.url(key), len(data) + len(piece), at_most)
                data += piece
        REQUESTS.add("get")
        REQUESTS.add("bytes_read", len(data))
        return bytes(data), size

    def head(self, key: str) -> ObjectInfo | None:
        """Asks for an object; None if it is absent."""
        import obstore

        REQUESTS.add("head")
        with self._errors("look at", key):
            try:
                return _info(obstore.head(self._small, key))
            except FileNotFoundError:
                return None

    def state(self, key: str) -> ObjectState | None:
        """Asks for an object as it is now; None if it is absent."""
        import obstore

        REQUESTS.add("head")
        with self._errors("look at", key):
            try:
                answer = obstore.get(self._small, key, options={"head": True})
            except FileNotFoundError:
                return None
            attributes = {str(name).lower(): str(value) for name, value in answer.attributes.items()}
            meta = answer.meta  # a time that Python does not have is an error here
            return ObjectState(attributes, _info(meta).modified_ms, meta["e_tag"], meta["version"])

    def put(self, key: str, data: bytes, attributes: Mapping[str, str] | None = None) -> None:
        """Makes or replaces an object."""
        import obstore

        with self._errors("write", key):
            store = self._store(len(data))
            obstore.put(store, key, data, attributes=dict(attributes or {}), use_multipart=False)
        REQUESTS.add("put")
        REQUESTS.add("bytes_written", len(data))

    def replace(self, key: str, data: bytes, attributes: Mapping[str, str], seen: ObjectState) -> bool:
        """Replaces an object if it is still as it was `seen`; False if it is not, or is gone.

        If a store cannot compare, the object is looked at before; another writer may still come in between. If an
        answer was lost, the object tells by `attributes`, which no other writer gives it.
        """
        import obstore
        from obstore import exceptions

        REQUESTS.add("put")
        REQUESTS.add("bytes_written", len(data))
        known = {"e_tag": seen.e_tag, "version": seen.version}
        compared: Any = {name: value for name, value in known.items() if value is not None} or "overwrite"
        with self._errors("write", key):
            try:
                store = self._store(len(data))
                obstore.put(store, key, data, attributes=dict(attributes), mode=compared, use_multipart=False)
            except (exceptions.PreconditionError, exceptions.AlreadyExistsError, FileNotFoundError):
                there = self.state(key)
                return there is not None and attributes.items() <= there.attributes.items()
            except (exceptions.NotSupportedError, NotImplementedError):
                return self._replace_looking(key, data, attributes, seen)
            except exceptions.BaseError as error:
                if not any(said in str(error) for said in _COMPARES_NOT):
                    raise
                return self._replace_looking(key, data, attributes, seen)
        return True

    def _replace_looking(self, key: str, data: bytes, attributes: Mapping[str, str], seen: ObjectState) -> bool:
        """Replaces an object that was just looked at once more: another writer may still come in between."""
        if self.state(key) != seen:
            return False
        self.put(key, data, attributes)
        return True

    @property
    def copies(self) -> bool:
        """Whether a copy is complete once it is answered: Azure may answer before, and obstore does not say so.

        False also once the store has said that it does not copy.
        """
        return self._bucket.scheme != "az" and not self._refuses_copies

    def copy(self, source: str, target: str) -> None:
        """Makes or replaces the object `target` with the content of `source`; MissingFileError if that is absent.

        If an answer is lost, the copy is asked for again: that makes the same object. Raises UnsupportedStorageError if
        the store does not copy.
        """
        import obstore

        if not self.copies:
            raise UnsupportedStorageError(f"{self.url(source)} cannot be copied by its store.", DEFECT)
        REQUESTS.add("put")
        try:
            with self._errors("copy", source, missing=True):
                obstore.copy(self._large, source, target)
        except StorageError as error:
            self._refuses_copies = isinstance(error, UnsupportedStorageError) or bool(_NO_COPIES.search(error.message))
            raise

    def create(self, key: str, data: bytes, attributes: Mapping[str, str] | None = None) -> bool:
        """Makes an object if it is absent; True if this call has made it, whatever answers were lost.

        Raises StorageError if that stays unknown.
        """
        marks = {_MARK: secrets.token_hex(8), **(attributes or {})}
        retrying = Retrying(
            retry=retry_if_result(lambda made: made is None or isinstance(made, StorageError)),
            wait=wait_random_exponential(multiplier=0.1, max=5),
            stop=stop_after_delay(self.times.retry_s),
        )
        try:
            return retrying(self._try_create, key, data, marks) is True
        except RetryError as error:
            if failure := error.last_attempt.result():
                raise failure from failure.__cause__
            raise StorageError(f"Could not create {self.url(key)}: it is there, and is not.", UNHEALTHY) from error

    def _try_create(self, key: str, data: bytes, marks: Mapping[str, str]) -> bool | StorageError | None:
        """Returns whether this create made the object; a StorageError if that is unknown, None if it is absent.

        Raises StorageError if another try cannot succeed.
        """
        import obstore
        from obstore import exceptions

        REQUESTS.add("put")
        REQUESTS.add("bytes_written", len(data))
        try:
            with self._errors("create", key):
                try:
                    store = self._once[len(data) > SMALL_BYTES]
                    obstore.put(store, key, data, mode="create", attributes=dict(marks))
                except (exceptions.AlreadyExistsError, exceptions.PreconditionError):
                    there = self.state(key)
                    return None if there is None else there.attributes.get(_MARK) == marks[_MARK]
                return True
        except UnsupportedStorageError:
            raise
        except StorageError as error:
            certain = isinstance(error, StorageRefusedError) or isinstance(error.__cause__, FileNotFoundError)
            if certain or error.action == _NO_URL:
                raise
            return error

    def open_writer(self, key: str) -> WritableFile:
        """Opens a new object, which is uploaded in parts of PART_BYTES, and appears with `close_writer`."""
        import obstore

        REQUESTS.add("put")
        with self._errors("write", key):
            return obstore.open_writer(self._large, key, buffer_size=PART_BYTES)

    def write_part(self, key: str, writer: WritableFile, data: bytes) -> None:
        """Uploads `data`, the next part of the object `key`."""
        with self._errors("write", key, absent=_UPLOAD_GONE):
            writer.write(data)
        REQUESTS.add("put")
        REQUESTS.add("bytes_written", len(data))

    def abort_writer(self, key: str, writer: WritableFile, error: BaseException) -> None:
        """Gives up the object `key`; the store then removes its parts."""
        with self._errors("give up", key):
            writer.__exit__(type(error), error, error.__traceback__)

    def close_writer(self, key: str, writer: WritableFile) -> None:
        """Completes the object `key` of its parts."""
        REQUESTS.add("put")
        with self._errors("write", key, absent=_UPLOAD_GONE):
            writer.close()

    def pages(self, listing: ObjectList, prefix: str, after: str | None = None) -> Iterator[list[ObjectInfo]]:
        """Lists every object below the folder `prefix`, by key, from the one that follows the key `after` on.

        Gives what a request gives, up to LIST_MAX; the next request is made when more is asked for.
        """
        with self._errors("list", prefix):
            for page in listing.pages(prefix, after):
                REQUESTS.add("list")
                yield list(map(_info, page))

    def listing(self, seconds: float) -> ObjectList:
        """Begins a list that takes up to `seconds` in all its requests: a context for `pages`."""
        return ObjectList(self._small, seconds)

    @property
    def skips(self) -> bool:
        """Whether the store begins a list after a key itself, so that `pages` need not go through those before it."""
        return self._bucket.scheme != "az"

    def delete(self, keys: Sequence[str]) -> None:
        """Removes objects, many in a request if the store can; those that are absent are no error."""
        import obstore

        for start in range(0, len(keys), _DELETE_MAX):
            some = list(keys[start : start + _DELETE_MAX])
            with self._errors("delete", some[0]):
                try:
                    obstore.delete(self._small, some)
                except FileNotFoundError:
                    self._delete_each(some)
            REQUESTS.add("delete")

    def _delete_each(self, keys: Sequence[str]) -> None:
        """Removes `keys` one by one: one of many that is absent ends the request for all of them on some stores."""
        import obstore

        for key in keys:
            REQUESTS.add("delete")
            try:
                obstore.delete(self._small, key)
            except FileNotFoundError:
                continue

    @contextmanager
    def _errors(self, what: str, key: str, *, missing: bool = False, absent: str = _UNKNOWN) -> Iterator[None]:
        """Raises what obstore raises as a StorageError: `what` failed with `key`, and what to do next.

        If something is not there, that is a MissingFileError if it may be the object (`missing`); otherwise `absent` is
        what to do about it.
        """
        from obstore import exceptions

        try:
            with self._credentials.hidden():
                yield
        except FileNotFoundError as error:
            kind, action = (MissingFileError, UNHEALTHY) if missing else (StorageError, absent)
            raise kind(f"Could not {what} {self.url(key)}: {brief(error)}.", action) from error
        except (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError) as error:
            raise refused(what, self.url(key), brief(error), _DENIED) from error
        except (exceptions.NotSupportedError, NotImplementedError) as error:
            raise UnsupportedStorageError(f"Could not {what} {self.url(key)}: {brief(error)}.", _NO_CREATES) from error
        except (exceptions.BaseError, OSError, ValueError) as error:
            why = brief(error)
            kind = OutOfRangeError if _NO_RANGE in why else StorageError
            action = _NO_URL if why.endswith(_NOT_SENT) else UNHEALTHY
            raise kind(f"Could not {what} {self.url(key)}: {why}.", action) from error


# Of this process, kept for its life: connections are shared by all storages of a bucket.
_CLIENTS: Final[dict[StoreBucket, ObjectClient]] = {}
_PROCESS: Final[list[int]] = []
"""The process that made the first client: obstore's threads are in no process that is forked from it."""


def client_of(bucket: StoreBucket) -> ObjectClient:
    """Returns this process's client of `bucket`. Raises StorageError if a process has used one and then forked."""
    if not _PROCESS:
        _PROCESS.append(os.getpid())
    if [os.getpid()] != _PROCESS:
        raise StorageError(
            f"Storage {bucket.url} is used in process {os.getpid()}, forked from one that used an object store.",
            "Start processes anew (spawn) in place of forking them: requests of this one would wait for ever.",
        )
    if bucket not in _CLIENTS:
        _CLIENTS[bucket] = ObjectClient(bucket)
    return _CLIENTS[bucket]


def _open(bucket: StoreBucket, retry: dict[str, Any], request_s: float) -> ObjectStore:
    from obstore import exceptions, store

    kind: Any = {"s3": store.S3Store, "gs": store.GCSStore, "az": store.AzureStore}[bucket.scheme]
    client: dict[str, Any] = {
        "connect_timeout": timedelta(seconds=bucket.times.connect_s),
        "timeout": timedelta(seconds=request_s),
        **({"allow_http": True} if bucket.allow_http else {}),
    }
    try:
        return kind(bucket.name, config=dict(bucket.options), client_options=client, retry_config=retry)
    except (exceptions.BaseError, ValueError) as error:
        raise UnsupportedStorageError(
            f"Storage {bucket.url} cannot be opened: {brief(error)}.", "Correct the storage.* keys of the worker file."
        ) from error


def _info(meta: Mapping[str, Any]) -> ObjectInfo:
    modified: datetime = meta["last_modified"]
    return ObjectInfo(meta["path"], meta["size"], round(modified.timestamp() * 1000))
