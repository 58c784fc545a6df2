"""Runs keyfold as it stands elsewhere: in an environment of another path, as another account, without a home."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.support.cli import ROOT
from tests.support.kafka import consume_all, create_topic, produce

HARD_NAME: Final = "a \"b\" 'c',ü$HOME${x}%20#h;&(1)[x]{y}\\b~"
"""What a shell, a URL, a list, a pattern or Java's properties would read as something else. Java's class path has
no way to write a colon."""
UNKNOWN: Final = 12_345
"""A user id without an account on any machine."""
_TIMEOUT_S: Final = 150
_TOPIC: Final = "customers"


def unknown_account() -> list[str] | None:
    """Returns the words before a command that run it as UNKNOWN; None if this machine does not let us.

    The account may read every file, as this process's Python and packages may lie in a folder of our account alone.
    """
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        return None
    own = ["setpriv", f"--reuid={UNKNOWN}", f"--regid={UNKNOWN}", "--clear-groups"]
    words = [*own, "--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"]
    return words if subprocess.run([*words, "true"], capture_output=True, check=False).returncode == 0 else None


def read_only_root(*writable: Path) -> list[str] | None:
    """Returns the words before a command that run it with all but `writable` read-only; None if that cannot be had.

    The machine there has a name that nobody resolves, as a container without a network of its own may.
    """
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        return None
    keep = "".join(f"mount --bind '{folder}' '{folder}' && " for folder in writable)
    script = f'hostname no-such-machine.invalid && {keep}mount -o remount,ro,bind / && exec "$@"'
    words = ["unshare", "--mount", "--uts", "sh", "-c", script, "sh"]
    return words if subprocess.run([*words, "true"], capture_output=True, check=False).returncode == 0 else None


def first_process() -> list[str]:
    """Returns the words before a command that run it as a container does: none outlives it. No words if that fails."""
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        return []
    words = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
    return words if subprocess.run([*words, "true"], capture_output=True, check=False).returncode == 0 else []


def make_environment(place: Path) -> Path:
    """Makes a virtual environment at `place` that has keyfold and its packages by links; returns its Python."""
    base = getattr(sys, "_base_executable", sys.executable)
    subprocess.run([base, "-m", "venv", "--without-pip", str(place)], check=True)
    packages = next(place.glob("lib/python3*/site-packages"))
    for folder in (each for each in map(Path, sys.path) if each.name == "site-packages" and each.is_dir()):
        for entry in folder.iterdir():
            if entry.suffix != ".pth" and not (packages / entry.name).exists():
                (packages / entry.name).symlink_to(entry)
    for name in ("compactor", "connectors"):
        (packages / name).unlink(missing_ok=True)
        (packages / name).symlink_to(ROOT / name)
    return place / "bin" / "python"


@dataclass(frozen=True)
class Elsewhere:
    """A folder in which `python` runs keyfold after the words `prefix`, with `variables` and nothing else around it.

    Commands but the broker have the words `within` before those.
    """

    folder: Path
    python: Path
    prefix: Sequence[str] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    within: Sequence[str] = ()

    def command(self, *arguments: object) -> list[str]:
        """The words of `keyfold ARGUMENTS…`."""
        return [*self.prefix, str(self.python), "-m", "connectors.cli.main", *map(str, arguments)]

    def environment(self) -> dict[str, str]:
        """The variables of its processes."""
        known = {name: os.environ[name] for name in ("PATH", "JAVA_HOME", "KEYFOLD_IVY_SETTINGS") if name in os.environ}
        return {**known, "PYTHONPATH": str(ROOT), **self.variables}

    def execute(self, *arguments: object) -> subprocess.CompletedProcess[str]:
        """Runs `keyfold ARGUMENTS…` to its end."""
        return subprocess.run(
            [*self.within, *self.command(*arguments)],
            cwd=self.folder,
            env=self.environment(),
            capture_output=True,
            text=True,
            check=False,
            timeout=_TIMEOUT_S,
        )

    def prove(self, **worker: str) -> dict[str, str]:
        """Takes a connector from a broker of its own to a snapshot and to `analyze`; returns what commands logged."""
        words = self.command("kafka", "--data-dir", self.folder / "kafka")
        with subprocess.Popen(
            words, cwd=self.folder, env=self.environment(), stdout=subprocess.PIPE, text=True
        ) as broker:
            try:
                assert broker.stdout is not None
                said = broker.stdout.readline()
                assert said.startswith("listening on ")
                return self._proved(said.removeprefix("listening on ").strip(), worker)
            finally:
                broker.terminate()
                broker.wait(60)

    def _proved(self, bootstrap: str, worker: Mapping[str, str]) -> dict[str, str]:
        create_topic(bootstrap, _TOPIC, 2)
        produce(bootstrap, _TOPIC, [(number % 2, b"%d" % (number % 10), b"v%d" % number) for number in range(100)])
        own = {"bootstrap.servers": bootstrap, "storage.location": "data", "listeners": ""}
        files = (
            self._write("customers.json", _CONNECTOR),
            "--worker",
            self._write("worker.json", {**own, **worker}),
        )
        logs = {}
        for command, *more in (("run", "--once"), ("analyze",)):
            done = self.execute(command, *files, *more)
            assert done.returncode == 0, done.stderr
            logs[command] = done.stderr
        published = {record.key: record.value for record in consume_all(bootstrap, f"{_TOPIC}.compacted")}
        assert published == {b"%d" % key: b"v%d" % (90 + key) for key in range(10)}
        assert (self.folder / "snapshots" / _TOPIC / _TOPIC / "LATEST").exists()
        return logs

    def _write(self, name: str, content: Mapping[str, Any]) -> Path:
        """Writes a file that the account may read, whoever it is."""
        file = self.folder / name
        file.write_text(json.dumps(content), encoding="utf-8")
        return file


_CONNECTOR: Final = {
    "name": _TOPIC,
    "connector.class": "keyfold.CompactedTopic",
    "topics": _TOPIC,
    "output.topic": "${topic}.compacted",
    "snapshot.location": "snapshots",
    "fold.local.max.records": "1",  # so that Spark's tasks fold, who have paths of their own
    "min.cleanable.dirty.ratio": "0",
}
