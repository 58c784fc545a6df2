"""Lets in who may come in: users and roles, pages of the web, sizes of bodies.

Passwords are bcrypt hashes, as `htpasswd -nB` makes them. To check one takes some 50 ms of a core on purpose, so a
password that was right is remembered, by a hash under a key of this process, until its line in the users' file changes.
The others are checked one after another, in turns (`password_checks`): those who guess take one thread, and a core at
most.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
import re
from collections.abc import Collection, Mapping
from enum import StrEnum
from http import HTTPStatus
from pathlib import Path
from typing import Final

import bcrypt
import msgspec
import structlog
from msgspec import structs
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from compactor.digits import whole
from connectors.config.errors import Fault, FaultyConfigError
from connectors.errors import BusyError
from connectors.rest import errors
from connectors.rest.answers import HeldBytes
from connectors.rest.password_checks import PasswordChecks
from connectors.rest.slow_calls import WAIT_S, SlowCalls

_log = structlog.get_logger()

BODY_MAX: Final = 1 << 20
"""The longest body (bytes) that a request may have."""
_OBJECTS: Final = 20
"""How many times the bytes of a JSON text its lists, or names, take as Python's objects."""
BODIES_MAX: Final = 128 << 20
"""What the bodies of all requests may take as such: of the longest, six at once."""
_READS: Final = ("GET", "HEAD", "OPTIONS")
_HASH: Final = re.compile(r"\$2[aby]\$(?P<cost>0[4-9]|[12]\d|3[01])\$(?P<salted>[./A-Za-z0-9]{53})")
COST_MAX: Final = 14
"""The largest cost of a hash, of `htpasswd -B -C COST`: to check one takes some 0.8 s of the thread that checks all of
them, and twice that with each more; with 31 it would be a day."""
LOGIN_THREADS: Final = 4
"""As many threads read the users' file, and one more checks passwords: no other request takes them."""
LOGINS_WAITING: Final = 90
"""How many requests wait for one of those that read the file, which each request needs for a moment."""
_PASSWORD_MAX: Final = 72
"""As many bytes of a password count for bcrypt."""
USER: Final = "user"
ROLE: Final = "role"
"""The names in a request's state under which `BasicAuth` keeps who has sent it."""
_OPEN: Final = ("/health",)
"""Paths that everyone may ask: probes have no password. With `strict=true` connectors are named, which takes one."""


class Role(StrEnum):
    """What a user may do: `viewer` reads, `admin` does everything."""

    VIEWER = "viewer"
    ADMIN = "admin"


class User(msgspec.Struct, frozen=True):
    """A user's password, as a bcrypt hash, and role."""

    password: bytes
    role: Role


def read_users(path: Path) -> dict[str, User]:
    """Reads a users' file: lines NAME:HASH:ROLE. Raises FaultyConfigError; the fault names the line, and no hash."""
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()  # some editors begin a file with a mark
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is not UTF-8"
        raise _fault(f'"{path}" cannot be read: {why}.') from None
    users: dict[str, User] = {}
    numbers: dict[str, int] = {}
    for number, line in enumerate(lines, 1):
        if line.strip() and not line.startswith("#"):
            name, user = _user(path, number, line.strip())
            if name in users:  # who takes a line out, or changes its role, would not see the other one
                raise _fault(f'"{path}", line {number}: it has the user of line {numbers[name]}; remove one of them.')
            users[name], numbers[name] = user, number
    if not any(user.role is Role.ADMIN for user in users.values()):
        raise _fault(f'"{path}" has no user with the role admin.')
    return users


def _user(path: Path, number: int, line: str) -> tuple[str, User]:
    name, _, rest = line.partition(":")
    text, _, role = rest.rpartition(":")
    cost = _cost(text)
    if not name or cost is None or role not in list(Role):
        raise _fault(
            f'"{path}", line {number}: a line is NAME:HASH:ROLE, HASH from `htpasswd -nB NAME`, ROLE viewer or admin.'
        )
    if cost > COST_MAX:
        raise _fault(
            f'"{path}", line {number}: its hash has the cost {cost}, at most {COST_MAX} is allowed: make it again with '
            "`htpasswd -nB NAME`."
        )
    return name, User(text.encode(), Role(role))


def _cost(text: str) -> int | None:
    """Returns the cost of a bcrypt hash, None for what is none; bcrypt itself says so, asked with the least cost."""
    hashed = _HASH.fullmatch(text)
    if hashed is None:
        return None
    try:
        bcrypt.checkpw(b"", f"$2b$04${hashed['salted']}".encode())
    except ValueError:
        return None
    return int(hashed["cost"])


def _fault(text: str) -> FaultyConfigError:
    return FaultyConfigError("worker", [Fault("rest.auth.users.file", text)])


class _UsersRead(msgspec.Struct, frozen=True):
    """The users of one version of the file, and the names of those that have given a right password since."""

    version: tuple[int, int]
    users: Mapping[str, User]
    verified: dict[bytes, str]

    def followed_by(self, version: tuple[int, int], users: Mapping[str, User]) -> _UsersRead:
        """Returns what is known with the next version: a password that was right is, if its hash stays."""

        def stays(name: str) -> bool:
            return name in users and users[name].password == self.users[name].password

        return _UsersRead(version, users, {proof: name for proof, name in self.verified.copy().items() if stays(name)})


class Users:
    """Checks names and passwords against a users' file, which is read again when it has changed.

    If the file is not valid then, that is logged, and the users that were read before count on. To be used on one event
    loop.
    """

    def __init__(self, path: Path, wait_s: float = WAIT_S) -> None:
        self._path = path
        self._key = os.urandom(32)
        self._read = _UsersRead(self._version(), read_users(path), {})
        self._checks = PasswordChecks(wait_s)
        self._calls = SlowCalls("log-ins", LOGIN_THREADS, LOGINS_WAITING, wait_s)

    async def role(self, name: str, password: bytes, address: str) -> Role | None:
        """Returns the role of the user `name` if the password is right, else None. Raises BusyError."""
        read = await self._calls.run(self._refreshed)  # one version for the whole check: the file may change
        counts = password[:_PASSWORD_MAX]
        proof = hmac.digest(self._key, name.encode() + b"\0" + counts, hashlib.sha256)
        user = read.users.get(name)
        if proof not in read.verified:
            hashed = (user or self._stand_in(read, name)).password
            is_right = await self._checks.is_right(address, name, counts, hashed)
            if user is None or not is_right:
                return None
            read.verified[proof] = name
        return read.users[name].role

    def _stand_in(self, read: _UsersRead, name: str) -> User:
        """Returns a user that is checked in place of one that there is not: how long that takes tells nothing.

        It is the same one for a name each time, as hashes differ in how long they take.
        """
        users = sorted(read.users.items())
        digest = hmac.digest(self._key, name.encode(), hashlib.sha256)
        return users[int.from_bytes(digest) % len(users)][1]

    def _refreshed(self) -> _UsersRead:
        version = self._version()
        if version == self._read.version:
            return self._read
        try:
            self._read = self._read.followed_by(version, read_users(self._path))
        except FaultyConfigError as error:
            self._read = structs.replace(self._read, version=version)
            _log.error("users file is not valid, going on with what was read before", error=str(error))
        return self._read

    def _version(self) -> tuple[int, int]:
        try:
            stat = self._path.stat()
        except OSError:
            return 0, 0
        return stat.st_mtime_ns, stat.st_ino


class BasicAuth:
    """Asks for a user of `users` with the right for the request's method (RFC 7617)."""

    def __init__(self, app: ASGIApp, users: Users) -> None:
        self._app = app
        self._users = users

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a request."""
        if scope["type"] != "http" or is_open(scope):
            await self._app(scope, receive, send)
            return
        named = _credentials(scope)
        try:
            address = (scope["client"] or ("", 0))[0]
            role = await self._users.role(*named, address) if named else None
        except BusyError as error:
            await errors.busy(error)(scope, receive, send)
            return
        if role is None:
            refusal = errors.answer(HTTPStatus.UNAUTHORIZED, "User cannot access the resource.")
            refusal.headers["WWW-Authenticate"] = 'Basic realm="keyfold"'
            await refusal(scope, receive, send)
        elif role is not Role.ADMIN and scope["method"] not in _READS:
            said = "The role viewer may only read; this takes the role admin."
            await errors.answer(HTTPStatus.FORBIDDEN, said)(scope, receive, send)
        else:
            assert named is not None, "a role is that of a user"
            scope.setdefault("state", {}).update({USER: named[0], ROLE: role})
            await self._app(scope, receive, send)


def _credentials(scope: Scope) -> tuple[str, bytes] | None:
    for name, value in scope["headers"]:
        if name == b"authorization" and value[:6].lower() == b"basic ":
            try:
                user, separator, password = base64.b64decode(value[6:], validate=True).partition(b":")
                return (user.decode(), password) if separator else None
            except (binascii.Error, UnicodeDecodeError):
                return None
    return None


class OwnPages:
    """Refuses changes that a page of the web has a browser send, unless the page is the worker's own or is named.

    Some requests a browser sends to any address, without asking first; CORS only keeps their answers from the page.
    """

    def __init__(self, app: ASGIApp, origins: Collection[str]) -> None:
        self._app = app
        self._origins = origins

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a request."""
        headers = dict(scope["headers"]) if scope["type"] == "http" else {}
        origin = headers.get(b"origin", b"").decode("latin-1")
        own = origin.partition("://")[2].lower() == headers.get(b"host", b"").decode("latin-1").lower()
        if not origin or own or scope["method"] in _READS or {origin, "*"} & {*self._origins}:
            await self._app(scope, receive, send)
            return
        said = f"Pages of {origin} may change nothing here; access.control.allow.origin names those that may."
        await errors.answer(HTTPStatus.FORBIDDEN, said)(scope, receive, send)


def is_open(scope: Scope) -> bool:
    """Returns whether everyone may make a request."""
    return scope["type"] == "http" and scope["path"].rstrip("/") in _OPEN and not scope["query_string"]


class LimitedBodies:
    """Refuses bodies that are longer than BODY_MAX, without reading them, and those that there is no room for."""

    def __init__(self, app: ASGIApp, held: HeldBytes) -> None:
        self._app = app
        self._held = held

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        length = next((value for name, value in scope["headers"] if name == b"content-length"), b"0")
        said = f"The request's body is longer than {BODY_MAX} bytes."
        if whole(length, BODY_MAX) is None:
            await errors.answer(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, said)(scope, receive, send)
            return
        taken = 0

        async def limited() -> Message:
            nonlocal taken
            message = await receive()
            taken += len(message.get("body", b""))
            if taken > BODY_MAX:
                raise HTTPException(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, said)
            share.hold(_OBJECTS * taken)
            return message

        with self._held.share() as share:
            await self._app(scope, limited, send)
