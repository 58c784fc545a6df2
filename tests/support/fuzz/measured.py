"""Measures one call: how long it computes, how much room it takes, and whether what it says is a reason."""

from __future__ import annotations

import faulthandler
import re
import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from connectors.chain.conversion import RejectedError
from connectors.errors import RegistryError
from connectors.rejection import Stage

CALL_S: Final = 0.1
"""How long (s of CPU time) a call may compute."""
NOISE: Final = 3
"""By how much a busy machine may lengthen that: cores are shared and change their clock."""
ROOM_KIB: Final = 64 << 10
"""By how much a call may raise the most memory that the process has had."""
HUNG_S: Final = 30.0
"""After how long (s) a call is taken for one that never ends; the process ends then, and says in which line it was."""
LIMIT_BYTES: Final = 1 << 30
"""By how much the address space may grow in all: what asks for more gets a MemoryError, and fails."""
_NAMES: Final = re.compile(r"\b[A-Z]\w+(Error|Exception|Iteration|Exit)\b|<class")


def limit_memory() -> None:
    """Bounds the address space of this process."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    bound = pages * resource.getpagesize() + LIMIT_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (bound, bound))


def check(name: str, call: Callable[[Any], object], case: Any) -> None:
    """Calls, and raises AssertionError for a call that takes too long, too much, or is refused without a reason."""
    seconds, room = _measured(name, call, case)
    tries = 0
    while seconds > CALL_S * NOISE and tries < 2:  # what else runs on the machine may have had its caches
        seconds, tries = min(seconds, _measured(name, call, case)[0]), tries + 1
    assert seconds <= CALL_S * NOISE, f"{name} computes for {seconds:.2f} s"
    assert room <= ROOM_KIB, f"{name} takes {room >> 10} MiB"


def _measured(name: str, call: Callable[[Any], object], case: Any) -> tuple[float, int]:
    before, began = _most(), time.thread_time()
    faulthandler.dump_traceback_later(HUNG_S, exit=True)
    try:
        call(case)
    except RegistryError:
        raise
    except Exception as error:  # noqa: BLE001  # which errors are reasons is what is looked at
        _check_reason(name, error)
    finally:
        faulthandler.cancel_dump_traceback_later()
    return time.thread_time() - began, _most() - before


def _check_reason(name: str, error: Exception) -> None:
    """Holds what the chain would say of an error against what an operator needs."""
    assert not isinstance(error, MemoryError), f"{name} asks for more than {LIMIT_BYTES >> 20} MiB"
    said = RejectedError(Stage.VALUE_CONVERTER, name, error).rejection.message
    if "defect" in said or _NAMES.search(said) or len(said.split()) < 3 or len(said) > 3_000:
        raise AssertionError(f"{name} says {said[:300]!r}") from error


def _most() -> int:
    """Returns the most memory (KiB) that this process has had: `ru_maxrss` may be of the one that started it."""
    status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
    return int(status.partition("VmHWM:")[2].split()[0])
