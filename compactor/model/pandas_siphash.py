"""pandas' SipHash of arrays of bytes, without the rest of pandas: importing this module loads it, in 2 ms.

To import pandas takes 0.2 to 0.4 s of processor time, and 40 MB, in each process that hashes keys. Its hash is one
compiled module that needs NumPy alone, so that one is loaded by itself. If this pandas has no such module, or it cannot
be loaded so, pandas is imported as usual, and `pandas.util.hash_array` gives the same hashes.
"""

from __future__ import annotations

import sys
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from pathlib import Path
from types import ModuleType
from typing import Final

import numpy as np
from numpy.typing import NDArray

_NAME: Final = "pandas._libs.hashing"


def _loaded() -> ModuleType | None:
    """Loads pandas' compiled module of hashes; returns None if that is not possible."""
    if _NAME in sys.modules:
        return sys.modules[_NAME]
    pandas = find_spec("pandas")
    folders = [str(Path(folder, "_libs")) for folder in (pandas and pandas.submodule_search_locations) or ()]
    spec = PathFinder.find_spec(_NAME, folders)
    if spec is None or spec.loader is None:
        return None
    module = module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except ImportError:
        return None
    return module if hasattr(module, "hash_object_array") else None


_MODULE: Final = _loaded()


def siphashes(keys: NDArray[np.object_], secret: str) -> NDArray[np.uint64]:
    """Returns what `pandas.util.hash_array` does of `keys`, which are bytes or None: SipHash, then a mixing of bits."""
    if _MODULE is None:
        from pandas.util import hash_array

        return np.asarray(hash_array(keys, hash_key=secret, categorize=False))
    words: NDArray[np.uint64] = _MODULE.hash_object_array(keys, secret, "utf8")
    words ^= words >> np.uint64(30)
    words *= np.uint64(0xBF58476D1CE4E5B9)
    words ^= words >> np.uint64(27)
    words *= np.uint64(0x94D049BB133111EB)
    words ^= words >> np.uint64(31)
    return words
