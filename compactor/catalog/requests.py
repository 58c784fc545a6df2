"""Leaves requests of commands for a live worker, and answers them: by files, as the store is all that both share.

    requests/<id>.json         the request; made exclusively by `leave`
    requests/<id>.begun.json   which came first: a worker that carries it out (`begin`), or the asker (`withdraw`)
    requests/<id>.done.json    the answer; made exclusively by `answer`

So each request has one answer, and a request that its asker has taken back is never carried out. If a worker dies
between `begun` and `done`, the next one carries the request out again: every request must bear to be carried out twice.
If an asker ends without taking its request back, the request is withdrawn once its time is over (`pending`), unless it
has begun.
"""

from __future__ import annotations

import re
import secrets
from typing import Any, Final

import msgspec
import structlog
from msgspec import Struct
from msgspec.structs import replace

from compactor.decode_errors import UNDECODABLE, why
from compactor.errors import ForeignContentError, MissingFileError, StorageError, StorageRefusedError
from compactor.json_types import decoded_as
from compactor.storage.base import FileInfo, Storage
from compactor.storage.limits import LARGE_BYTES

FOLDER: Final = "requests"
GRACE_MS: Final = 30_000
"""How far the clocks of asker and worker may be apart."""
_ASKED: Final = ".json"
_BEGUN: Final = ".begun.json"
# Two values of the begun file: exactly one of them is created, which decides who came first.
_CARRIED_OUT: Final = b'{"withdrawn":false}'
_TAKEN_BACK: Final = b'{"withdrawn":true}'
_DONE: Final = ".done.json"
_ID: Final = re.compile(r"[0-9A-Za-z_-]{1,64}")
"""Ids of requests; a file with another name is none: with the longest ending it would be no file's name any more."""
_ASKED_BYTES: Final = 1 << 20
"""Bytes of a request that are read: an erasure names up to some thousand snapshots and files."""
_AT_ONCE: Final = 1_000
"""How many requests are read at once, the oldest: the others wait until these are answered."""

_log = structlog.get_logger()


class Request(Struct, frozen=True, kw_only=True):
    """What a command asks of the worker: `kind` is the command's name; None for topic and partition means all.

    Its asker waits until `until_ms`; None: for ever. `accepts_loss`, `since_ms`: see `OffsetChange`. `since_offset`:
    the source offset from which `partition` is read. `snapshots`: the ids of those that an erasure removes;
    `topics`: those that it is about; `files`: run files that have more than the logs that name them.
    """

    id: str
    kind: str
    asked_ms: int
    topic: str | None = None
    partition: int | None = None
    until_ms: int | None = None
    accepts_loss: bool = False
    since_ms: int | None = None
    since_offset: int | None = None
    snapshots: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()
    files: tuple[str, ...] = ()


class Answer(Struct, frozen=True, kw_only=True):
    """What became of a request; `message` and `action` as in KeyfoldError, `result` for people and --json.

    `unreachable`: it was not done as brokers or storage did not answer the worker.
    """

    ok: bool
    message: str = ""
    action: str = ""
    unreachable: bool = False
    result: dict[str, Any] = {}


WITHDRAWN: Final = Answer(ok=False, message="The request was withdrawn.")


def leave(storage: Storage, wanted: Request) -> Request:
    """Leaves `wanted` in the connector's folder `storage`, and returns it with the id it gets. Raises StorageError."""
    request = replace(wanted, id=f"{wanted.asked_ms:014d}-{secrets.token_hex(4)}")
    if not storage.create(_path(request.id, _ASKED), msgspec.json.encode(request)):
        raise StorageError(f"{storage.location}/{_path(request.id, _ASKED)} exists already.", "Try again.")
    return request


def pending(storage: Storage, now_ms: int) -> tuple[Request, ...]:
    """Reads the requests without an answer, the oldest first. Raises StorageError.

    A request that cannot be read, or has another id than its file, is answered with that. Once its time is over, a
    request that no worker has begun is withdrawn: its asker has ended.
    """
    names = frozenset(storage.list(FOLDER))
    unanswered = [request for name in _unanswered(names)[:_AT_ONCE] if (request := _read(storage, name))]
    return tuple(waiting for waiting in unanswered if not _is_over(storage, waiting, names, now_ms))


def _is_over(storage: Storage, waiting: Request, names: frozenset[str], now_ms: int) -> bool:
    """Withdraws a request if its time is over and no worker has begun it; returns whether it has.

    What has begun is carried out, and answered with what came of it. `names` are the files of all requests.
    """
    expired = waiting.until_ms is not None and now_ms > waiting.until_ms + GRACE_MS
    return expired and waiting.id + _BEGUN not in names and withdraw(storage, waiting.id)


def is_any_pending(storage: Storage) -> bool:
    """Returns whether any request has no answer: one listing, nothing is read. Raises StorageError."""
    return bool(_unanswered(frozenset(storage.list(FOLDER))))


def begin(storage: Storage, request_id: str) -> bool:
    """Begins a request for the worker; False if its asker has taken it back. Raises StorageError."""
    if storage.create(_path(request_id, _BEGUN), _CARRIED_OUT):
        return True
    try:
        withdrawn = storage.read(_path(request_id, _BEGUN)) == _TAKEN_BACK
    except MissingFileError:  # the vacuum has removed it, with its answer
        return False
    except ForeignContentError as error:  # it would stand in the way for ever
        answer(storage, request_id, _refusal(error.message, error.action))
        return False
    if withdrawn:  # by an asker that ended before it answered the request
        answer(storage, request_id, WITHDRAWN)
    return not withdrawn


def answer(storage: Storage, request_id: str, given: Answer) -> bool:
    """Answers a request, once; False if it has an answer. Raises StorageError."""
    return storage.create(_path(request_id, _DONE), msgspec.json.encode(given))


def answered(storage: Storage, request_id: str) -> Answer | None:
    """Reads the answer of a request; None if there is none yet. Raises StorageError."""
    try:
        return decoded_as(storage.read(_path(request_id, _DONE), LARGE_BYTES), Answer)
    except MissingFileError:
        return None
    except ForeignContentError as error:
        return _refusal(error.message, error.action)
    except UNDECODABLE as error:
        return Answer(ok=False, message=f"{storage.location}/{_path(request_id, _DONE)} is damaged: {why(error)}.")


def withdraw(storage: Storage, request_id: str) -> bool:
    """Takes a request back: no worker will carry it out. False if a worker has begun or answered it.

    Raises StorageError.
    """
    first = storage.create(_path(request_id, _BEGUN), _TAKEN_BACK)
    return first and answer(storage, request_id, WITHDRAWN)


def answered_before(storage: Storage, before_ms: int) -> list[FileInfo]:
    """Lists the files of requests that were answered before `before_ms`, of each request the answer last."""
    files = {info.path: info for info in storage.walk(FOLDER)}
    old = [info for info in files.values() if info.path.endswith(_DONE) and info.modified_ms < before_ms]
    stems = [info.path.removesuffix(_DONE) for info in old]
    return [info for stem in stems for ending in (_ASKED, _BEGUN, _DONE) if (info := files.get(stem + ending))]


def _unanswered(names: frozenset[str]) -> list[str]:
    """Returns the ids of the requests without an answer among the files `names`, the oldest first."""
    asked = sorted(name for name in names if name.endswith(_ASKED) and not name.endswith((_DONE, _BEGUN)))
    ids = (name.removesuffix(_ASKED) for name in asked)
    return [name for name in ids if name + _DONE not in names and _ID.fullmatch(name)]


def _read(storage: Storage, name: str) -> Request | None:
    """Reads a request; None if there is none to carry out. Of one that cannot be read the others do not wait."""
    where = f"{storage.location}/{_path(name, _ASKED)}"
    try:
        request = decoded_as(storage.read(_path(name, _ASKED), _ASKED_BYTES), Request)
    except MissingFileError:
        return None
    except (ForeignContentError, StorageRefusedError) as error:
        refused = _refusal(error.message, error.action)
    except StorageError as error:
        _log.warning("a request cannot be read now", request=name, error=str(error))
        return None
    except UNDECODABLE as error:
        refused = _refusal(f"{where} is no request: {why(error)}.", "Leave it again.")
    else:
        if request.id == name:
            return request
        refused = _refusal(f"{where} is no request: it has the id of another one.", "Leave it again.")
    answer(storage, name, refused)
    return None


def _refusal(message: str, action: str) -> Answer:
    return Answer(ok=False, message=message, action=action)


def _path(request_id: str, ending: str) -> str:
    return f"{FOLDER}/{request_id}{ending}"
