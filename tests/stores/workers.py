"""`python -m tests.stores.workers`: runs tests of workers and of faults with storage and snapshots in object stores.

Each run is a pytest of its own with STORE and STORE_FAULTS (`tests/support/stores/chosen.py`). It goes on after one
that fails, and exits with 1 at the end.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Final, NamedTuple

from tests.support.stores.chosen import FAULTS, KINDS, STORE

_E2E: Final = (
    "tests/e2e/test_once.py",
    "tests/e2e/test_worker.py",
    "tests/e2e/test_crash.py",
    "tests/e2e/test_snapshot_resume.py",
    "tests/e2e/test_delete.py",
)
"""What a worker does, on every store."""
_MORE: Final = tuple(
    f"tests/e2e/test_{name}.py"
    for name in ("rebuild", "generations", "dlq", "key_identity", "lag", "stop", "background", "overlap", "aside")
)
"""What it does above the storage: on one store."""
_ERASE: Final = ("tests/e2e/test_erase.py",)
_READERS: Final = ("tests/e2e/test_bootstrap_kills.py",)
"""Erasures, and readers of snapshots, on one store: with the cases that `make test` leaves out."""
_KILLS: Final = ("tests/faults/test_kill.py", "-k", "worker_killed and (catalog or ingest or publish or takeover)")
"""Kills at each step that writes to the catalog."""
_FAULTS: Final = (
    "tests/faults/test_kill.py",
    "-k",
    "worker_killed and (catalog.created or ingest.after-commit or publish.before-commit or snapshot.manifest)",
)
"""Kills where a commit stands and is not confirmed, or what belongs to it is not done."""


class Run(NamedTuple):
    """Tests on one store, with one kind of faults."""

    store: str
    kind: str
    tests: tuple[str, ...]


_STORES: Final = ("moto", "s3proxy", "azurite")

RUNS: Final = (
    *(Run(store, "", _E2E) for store in _STORES),
    Run("moto", "", _MORE),
    Run("moto", "", _ERASE),
    Run("moto", "", _READERS),
    *(Run(store, "", _KILLS) for store in _STORES),
    *(Run(store, kind, _FAULTS) for store in _STORES for kind in KINDS),
)


def main() -> int:
    """Runs all, or those of the stores and kinds of faults that are given as arguments; returns 1 if one failed."""
    wanted = set(sys.argv[1:])
    stores, kinds = wanted & set(_STORES), wanted & KINDS.keys()
    if unknown := wanted - stores - kinds:
        sys.exit(f"No store and no kind of faults: {', '.join(sorted(unknown))}.")
    failed = []
    for run in RUNS:
        if (stores and run.store not in stores) or (kinds and run.kind not in kinds):
            continue
        name = f"{run.store}{', ' + run.kind if run.kind else ''}: {' '.join(run.tests)}"
        print(f"== {name}", flush=True)
        chosen = {STORE: run.store, FAULTS: run.kind, "FAULTS": "all"}
        if run.tests in (_ERASE, _READERS):
            chosen["LONG"] = "1"
        command = [sys.executable, "-m", "pytest", "-n", "2", "--dist", "loadgroup", *run.tests]
        if subprocess.run(command, env={**os.environ, **chosen}, check=False).returncode:
            failed.append(name)
    print("\n".join(["", *(f"FAILED {name}" for name in failed)]) if failed else "All runs passed.", flush=True)
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
