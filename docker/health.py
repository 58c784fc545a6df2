"""The image's health check: `keyfold describe`, and whether what it says is healthy."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any


def fault(description: dict[str, Any]) -> str | None:
    """What is wrong with a worker of which `keyfold describe --json` says this; None where nothing is.

    A connector that waits for its next restart is at work; one that FAILED for good, or a worker that has not
    written its status for a while, is not.
    """
    status = description.get("status")
    if not description["owner"]["alive"]:
        return "no worker owns the connector"
    if status is None or status["stale"]:
        return "the worker has not written its status for a while"
    if status["state"] == "FAILED" and status["next_restart_ms"] is None:
        return f"the connector FAILED: {status['error']}"
    return None


def main() -> int:
    """Asks `keyfold describe` for the files that the environment names; 0 healthy, 1 not."""
    files = [os.environ["CONNECTOR_FILE"], "--worker", os.environ["WORKER_FILE"]]
    asked = subprocess.run(["keyfold", "describe", *files, "--json"], capture_output=True, text=True, check=False)
    found = asked.stderr if asked.returncode else fault(json.loads(asked.stdout))
    print(found or "healthy")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
