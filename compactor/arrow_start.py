"""Has Arrow begin without pandas, which it imports with the first array that a process makes of a list.

That takes 0.2 to 0.3 s of processor time: much of the second that a look-up may take, and in each of the processes that
read. What needs pandas (`model/key_hash.py`) imports it itself, when there is something to hash.
"""

from __future__ import annotations

import sys


class _NoPandas:
    """Refuses an import of pandas, as a finder of Python's."""

    def find_spec(self, name: str, *_: object) -> None:
        """Returns None: other modules are left to the other finders."""
        if name == "pandas":
            raise ImportError(name)


def begin_without_pandas() -> None:
    """Makes the first array, with which Arrow tries to import pandas: once in a process.

    From then on Arrow knows no object of pandas in this process, and it may be imported. Nothing is done if it is.
    """
    if "pandas" in sys.modules:
        return
    refusing = _NoPandas()
    sys.meta_path.insert(0, refusing)
    try:
        import pyarrow as pa

        pa.array([])
    finally:
        sys.meta_path.remove(refusing)
