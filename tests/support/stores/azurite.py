"""Runs Azurite 3.37.0, Microsoft's emulator of Azure Blob Storage, on a free port, with its blobs in memory."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from email.utils import formatdate
from pathlib import Path
from typing import Final

import httpx

from connectors.dev.embedded_kafka import free_port
from connectors.jvm.cache import default_cache
from tests.support.kafka import wait_until
from tests.support.stores.running import BUCKET, RunningStore

VERSION: Final = "3.37.0"
INTEGRITY: Final = "sha512-dl2AXMkXtVlX9s3U3ttIQFFlKwe64k/ugSIVNT4V3qX488Ncw988rIHAs6apgUtfEzyqwtFN9MZp0Foq60Htag=="
"""Of Azurite's own package, in npm's form; npm holds the packages that it needs to those of the registry."""
STARTED_S: Final = 60.0
ACCOUNT: Final = "devstoreaccount1"
KEY: Final = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""The account that every Azurite has, and its key, which Microsoft has published: no secret."""


def ensure_azurite() -> Path:
    """Returns its script, which is fetched with npm now (186 MB unpacked) where it is not there."""
    target = default_cache() / f"azurite-{VERSION}"
    if not target.is_dir():
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".fetch-", dir=target.parent) as scratch:
            fetched = Path(scratch, "azurite")
            options = ["--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error", "--prefix", str(fetched)]
            subprocess.run(["npm", "install", *options, f"azurite@{VERSION}"], check=True, cwd=scratch)
            known = json.loads((fetched / "node_modules/.package-lock.json").read_text(encoding="utf-8"))
            found = known["packages"]["node_modules/azurite"]["integrity"]
            assert found == INTEGRITY, "the package is not the one that is pinned here"
            with suppress(FileExistsError):  # another process was quicker
                shutil.move(fetched, target)
    return target / "node_modules/azurite/dist/src/blob/main.js"


@contextmanager
def azurite(folder: Path) -> Iterator[RunningStore]:
    """Runs one during the block; its log is in `folder`."""
    port = free_port()
    url = f"http://127.0.0.1:{port}/{ACCOUNT}"
    options = ["--inMemoryPersistence", "--silent", "--disableTelemetry", "--skipApiVersionCheck"]
    command = ["node", str(ensure_azurite()), *options, "--blobHost", "127.0.0.1", "--blobPort", str(port)]
    with (folder / "azurite.log").open("ab") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder)
    try:
        wait_until(lambda: _has_container(url), "Azurite answers", STARTED_S)
        yield RunningStore("azurite", url, f"az://{BUCKET}", azure_keys)
    finally:
        process.kill()
        process.wait()


def azure_keys(url: str) -> dict[str, str]:
    """Returns the keys of a worker file for the account of an Azurite."""
    return {
        "storage.azure.endpoint": url,
        "storage.azure.account.name": ACCOUNT,
        "storage.azure.account.key": KEY,
        "storage.azure.allow.http": "true",
    }


def _has_container(url: str) -> bool:
    """Makes the container, by a request that is signed with the account's key (Shared Key of the Blob service)."""
    headers = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": "2021-08-06"}
    signed = (
        "PUT" + "\n" * 12
        + "".join(f"{name}:{value}\n" for name, value in headers.items())
        + f"/{ACCOUNT}/{ACCOUNT}/{BUCKET}\nrestype:container"
    )  # fmt: skip
    digest = hmac.new(base64.b64decode(KEY), signed.encode(), hashlib.sha256).digest()
    headers["Authorization"] = f"SharedKey {ACCOUNT}:{base64.b64encode(digest).decode()}"
    try:
        return httpx.put(f"{url}/{BUCKET}?restype=container", headers=headers, timeout=5.0).is_success
    except httpx.HTTPError:
        return False
