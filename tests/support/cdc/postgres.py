"""Runs PostgreSQL from its Debian package on a free port of this machine, as an account that is not root."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from secrets import token_hex
from typing import Any, Final

from connectors.dev.embedded_kafka import free_port

PACKAGES: Final = "postgresql postgresql-contrib"
"""What `apt-get install` gets: the server with its programs, and the extension hstore."""
USER: Final = "keyfold"
DATABASE: Final = "postgres"
_FOLDERS: Final = Path("/usr/lib/postgresql")
# A test's database may be lost with the machine: nothing waits for the disk.
_SETTINGS: Final = ("wal_level=logical", "fsync=off", "synchronous_commit=off", "max_wal_size=2GB", "timezone=UTC")
_LIMIT_S: Final = 300


@cache
def programs() -> Path | None:
    """Returns the folder of the newest server's programs; None if the package is not installed."""
    servers = sorted(_FOLDERS.glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    return servers[-1].parent if servers else None


class Postgres:
    """A server with one database; `port` is where it answers on 127.0.0.1."""

    def __init__(self, folder: Path, port: int) -> None:
        self._folder = folder
        self.port = port
        self.password = token_hex(16)

    def run(self, sql: str, database: str = DATABASE) -> str:
        """Runs statements, each a transaction of its own unless the text says otherwise; returns what they print."""
        command = [_program("psql"), "-XqAt", "-v", "ON_ERROR_STOP=1", "-h", "127.0.0.1", "-p", str(self.port)]
        done = subprocess.run(
            [*command, "-U", USER, database],
            input=sql,
            env={**os.environ, "PGPASSWORD": self.password, "PGCLIENTENCODING": "UTF8"},
            capture_output=True,
            text=True,
            timeout=_LIMIT_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def rows(self, select: str) -> list[list[Any]]:
        """Returns the rows of a query of one column with JSON arrays."""
        return [json.loads(line) for line in self.run(select).splitlines()]

    def control(self, *what: str) -> None:
        """Runs `pg_ctl` as the server's account; raises CalledProcessError."""
        _as_account([_program("pg_ctl"), "-D", str(self._folder / "data"), "-s", "-w", *what])


@contextmanager
def postgres() -> Iterator[Postgres]:
    """Runs a server with an empty database during the block."""
    # Not in the folder of a test, which other accounts may not enter.
    folder = Path(tempfile.mkdtemp(prefix="keyfold-postgres-"))
    server = Postgres(folder, free_port())
    try:
        password = folder / "password"
        password.write_text(server.password, encoding="ascii")
        _give(folder)
        _give(password)
        how = ["-U", USER, "-E", "UTF8", "--locale=C", "-A", "scram-sha-256", f"--pwfile={password}", "-N"]
        _as_account([_program("initdb"), "-D", str(folder / "data"), *how])
        options = " ".join(f"-c {setting}" for setting in _SETTINGS)
        where = f"-h 127.0.0.1 -p {server.port} -k {folder}"
        server.control("-l", str(folder / "log"), "-o", f"{where} {options}", "start")
        try:
            yield server
        finally:
            server.control("-m", "immediate", "stop")
    finally:
        shutil.rmtree(folder)


def _program(name: str) -> str:
    folder = programs()
    assert folder is not None, f"PostgreSQL is not installed: apt-get install {PACKAGES}"
    return str(folder / name)


def _account() -> str | None:
    """Returns the account that the server gets; None: this one, which is not root."""
    return "postgres" if os.geteuid() == 0 else None


def _give(path: Path) -> None:
    account = _account()
    if account is not None:
        entry = pwd.getpwnam(account)
        os.chown(path, entry.pw_uid, entry.pw_gid)


def _as_account(command: list[str]) -> None:
    account = _account()
    how: dict[str, Any] = {"user": account, "group": account, "extra_groups": []} if account else {}
    done = subprocess.run(
        command,
        cwd="/",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        check=False,
        timeout=_LIMIT_S,
        **how,
    )
    assert done.returncode == 0, done.stderr.decode(errors="replace")
