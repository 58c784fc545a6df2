"""The image's health check: whether the worker says that it is well.

Not `/health?strict=true`, which also fails for a connector that FAILED or is behind: whoever restarts an unhealthy
container would stop all connectors for one, which the worker restarts by itself. Alerts tell of connectors
(docker/prometheus/alerts.yml).
"""

from __future__ import annotations

import os
import sys
from http import HTTPStatus

import httpx

URL = "http://127.0.0.1:8083"
TIMEOUT_S = 10.0


def main() -> int:
    """Asks the worker at KEYFOLD_REST_URL, and prints what it answers; 0 healthy, 1 not."""
    url = os.environ.get("KEYFOLD_REST_URL", URL).rstrip("/")
    try:
        answer = httpx.get(f"{url}/health", timeout=TIMEOUT_S, trust_env=False)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        print(f"no worker answers at {url}: {error}")
        return 1
    print(answer.text)
    return 0 if answer.status_code == HTTPStatus.OK else 1


if __name__ == "__main__":
    sys.exit(main())
