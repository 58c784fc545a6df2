"""Tells errors that a machine makes from those that a record makes: a record is rejected for its own alone."""

from __future__ import annotations

import errno
from typing import Final

from connectors.errors import MachineError

_NUMBERS: Final = frozenset(
    {errno.EAGAIN, errno.EDQUOT, errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOSPC, errno.EROFS}
)
"""What a system says if it has no memory, processes, files or room left. A library may raise others of these errors for
a record: a time that is too large for a C function, for one."""
_NO_THREAD: Final = "can't start new thread"
"""What Python says if the process may have no more of them; the error has no class of its own."""
MEND: Final = (
    "See what the machine, or the container, is short of: memory, files (ulimit -n), processes and threads "
    "(ulimit -u), or room in the folder of TMPDIR."
)
_SAID: Final = 200
"""Characters that are shown of such an error: the reason and a path. A library may add a page."""
_AGAIN: Final = f"The connector is tried again. {MEND}"


def refuse_machine(error: BaseException) -> None:
    """Raises MachineError if `error`, or one that it came from, says that the machine lacks something.

    Each record is bounded before it is worked on, so memory that is short is no property of one.
    """
    link: BaseException | None = error
    seen: set[int] = set()
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        if is_of_machine(link):
            raise MachineError(
                f"The machine lacks what it takes to read or write a record: {lack_of(link)}.", _AGAIN
            ) from None
        link = link.__cause__ or link.__context__


def is_of_machine(error: BaseException) -> bool:
    """Returns whether `error` itself says that the machine lacks something."""
    if isinstance(error, OSError):
        return error.errno in _NUMBERS
    return isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and _NO_THREAD in str(error))


def lack_of(error: BaseException) -> str:
    """Returns in a line what `error` says that the machine lacks; Python says nothing of memory."""
    return " ".join(str(error).split())[:_SAID].removesuffix(".") or "memory is short"
