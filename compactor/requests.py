"""Requests to a live worker, by commands that run beside it: files, because the store is all that both surely share.

    requests/<id>.json        what is asked; made exclusively by `leave`
    requests/<id>.done.json   the answer; made exclusively by `answer`, by the worker or by an asker who gives up

So each request has one answer. The worker carries a request out and then answers it; if it dies in between, the next
worker carries it out again: what is asked for must bear that. An asker who stops waiting answers it himself
(`withdraw`); False tells him that the worker was first.
"""

from __future__ import annotations

import secrets
from typing import Any, Final

import msgspec
from msgspec import Struct

from compactor.errors import StorageError
from compactor.storage import FileInfo, MissingFileError, Storage

FOLDER: Final = "requests"
_ASKED: Final = ".json"
_DONE: Final = ".done.json"


class Request(Struct, frozen=True, kw_only=True):
    """What a command asks of the worker: `kind` is the command's name; None for topic and partition is all."""

    id: str
    kind: str
    asked_ms: int
    topic: str | None = None
    partition: int | None = None


class Answer(Struct, frozen=True, kw_only=True):
    """What became of a request; `message` and `action` as in KeyfoldError, `result` for people and --json."""

    ok: bool
    message: str = ""
    action: str = ""
    result: dict[str, Any] = {}


def leave(storage: Storage, kind: str, now_ms: int, topic: str | None = None, partition: int | None = None) -> Request:
    """Leaves a request in the connector's folder `storage`. Raises StorageError."""
    name = f"{now_ms:014d}-{secrets.token_hex(4)}"
    request = Request(id=name, kind=kind, asked_ms=now_ms, topic=topic, partition=partition)
    if not storage.create(_asked(name), msgspec.json.encode(request)):
        raise StorageError(f"{storage.location}/{_asked(name)} exists already.", "Try again.")
    return request


def pending(storage: Storage) -> tuple[Request, ...]:
    """The requests without an answer, the oldest first. One that cannot be read is answered so. Raises StorageError."""
    names = set(storage.list(FOLDER))
    asked = sorted(name for name in names if name.endswith(_ASKED) and not name.endswith(_DONE))
    ids = [name.removesuffix(_ASKED) for name in asked if name.removesuffix(_ASKED) + _DONE not in names]
    return tuple(found for name in ids if (found := _read(storage, name)))


def answer(storage: Storage, request_id: str, given: Answer) -> bool:
    """Answers a request, once; False where it has an answer. Raises StorageError."""
    return storage.create(_done(request_id), msgspec.json.encode(given))


def answered(storage: Storage, request_id: str) -> Answer | None:
    """The answer, if there is one yet. Raises StorageError."""
    try:
        return msgspec.json.decode(storage.read(_done(request_id)), type=Answer)
    except MissingFileError:
        return None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return Answer(ok=False, message=f"{storage.location}/{_done(request_id)} is damaged: {error}.")


def withdraw(storage: Storage, request_id: str) -> bool:
    """Takes a request back; False where it has been answered. A worker may be at it: its answer comes too late then."""
    return answer(storage, request_id, Answer(ok=False, message="The request was withdrawn."))


def answered_before(storage: Storage, before_ms: int) -> list[FileInfo]:
    """The files of requests that were answered before `before_ms`, each request ahead of its answer."""
    files = {info.path: info for info in storage.walk(FOLDER)}
    old = [info for info in files.values() if info.path.endswith(_DONE) and info.modified_ms < before_ms]
    asked = [files.get(info.path.removesuffix(_DONE) + _ASKED) for info in old]
    return [info for pair in zip(asked, old, strict=True) for info in pair if info]


def _read(storage: Storage, name: str) -> Request | None:
    try:
        return msgspec.json.decode(storage.read(_asked(name)), type=Request)
    except MissingFileError:
        return None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        refused = f"{storage.location}/{_asked(name)} is no request: {error}."
        answer(storage, name, Answer(ok=False, message=refused, action="Leave it again."))
        return None


def _asked(request_id: str) -> str:
    return f"{FOLDER}/{request_id}{_ASKED}"


def _done(request_id: str) -> str:
    return f"{FOLDER}/{request_id}{_DONE}"
