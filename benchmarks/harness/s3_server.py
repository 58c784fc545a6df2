"""An S3 server in memory, in a process of its own as a store is, and a proxy that delays every request."""

from __future__ import annotations

import argparse
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

from benchmarks.harness.process import ROOT

_STARTED_S: Final = 60.0


@contextmanager
def s3_server(delay_ms: int = 0) -> Iterator[dict[str, str]]:
    """Runs one during the block, with one empty bucket; gives the keys of a worker file for it.

    Server and proxy, where requests are delayed, have a process each: one interpreter for both would be what is
    measured.
    """
    with ExitStack() as stack:
        url = stack.enter_context(_started("serve"))
        if delay_ms:
            url = stack.enter_context(_started("delay", "--upstream", url, "--ms", str(delay_ms)))
        from tests.support.stores.running import BUCKET, s3_keys

        yield {"storage.location": f"s3://{BUCKET}/bench", **s3_keys(url)}


@contextmanager
def _started(*arguments: str) -> Iterator[str]:
    """Runs this module as a command during the block; gives the endpoint that it prints."""
    command = [sys.executable, "-m", "benchmarks.harness.s3_server", *arguments]
    process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    too_late = threading.Timer(_STARTED_S, process.kill)
    too_late.start()
    try:
        url = process.stdout.readline().strip()
        too_late.cancel()
        if not url:
            raise RuntimeError(f"{' '.join(command)} did not start")
        yield url
    finally:
        too_late.cancel()
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()


def main() -> None:
    """Serves until its standard input ends, as it does with the process that started it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["serve", "delay"])
    parser.add_argument("--upstream", default="")
    parser.add_argument("--ms", type=int, default=0)
    options = parser.parse_args()
    if options.what == "serve":
        from tests.support.stores.moto_server import moto_server

        with moto_server() as store:
            print(store.url, flush=True)
            sys.stdin.read()
    else:
        from tests.support.stores.faulty_proxy import Faults, faulty_proxy

        with faulty_proxy(options.upstream) as proxy:
            proxy.faults = Faults(delay_s=options.ms / 1000)
            print(proxy.url, flush=True)
            sys.stdin.read()


if __name__ == "__main__":
    main()
