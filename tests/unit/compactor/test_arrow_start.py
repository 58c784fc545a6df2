"""Arrow makes arrays and keys are hashed without pandas, which can be imported all the same."""

from __future__ import annotations

import subprocess
import sys

_PROGRAM = """
import sys
from compactor.arrow_start import begin_without_pandas

begin_without_pandas()
import pyarrow as pa

pa.array([1, None])
from compactor.model.key_hash import plain_hashes

keys = pa.array([None, b"", b"k" * 99, *(b"%d" % number for number in range(2_000))], pa.binary())
few, many = plain_hashes(keys.slice(0, 5)), plain_hashes(keys)
assert many[:5].tolist() == few.tolist()
assert "pandas" not in sys.modules
begin_without_pandas()

import pandas as pd
from pandas.util import hash_array

assert hash_array(keys.to_numpy(zero_copy_only=False), categorize=False).tolist() == many.tolist()
assert plain_hashes(keys).tolist() == many.tolist()
assert pd.DataFrame({"key": keys}).shape == (len(keys), 1)
"""

_WITHOUT_THE_MODULE = """
import sys
from importlib.machinery import PathFinder

find = PathFinder.find_spec
PathFinder.find_spec = lambda name, *rest: None if name == "pandas._libs.hashing" and rest else find(name, *rest)
from compactor.arrow_start import begin_without_pandas

begin_without_pandas()
import pyarrow as pa
import compactor.model.pandas_siphash
from compactor.model.key_hash import hash_of, plain_hashes

PathFinder.find_spec = find
assert "pandas" not in sys.modules
keys = [None, b"", b"k" * 99, *(b"%d" % number for number in range(100))]
assert plain_hashes(pa.array(keys, pa.binary())).tolist() == [hash_of(key) for key in keys]
assert "pandas" in sys.modules
"""


def _output_of(program: str) -> tuple[int, str]:
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60)
    return ended.returncode, ended.stderr


def test_arrow_begins_and_keys_are_hashed_without_pandas() -> None:
    """In a process of its own, as Arrow tries to import pandas once; pandas gives the same hashes when it is there."""
    assert _output_of(_PROGRAM) == (0, "")


def test_keys_are_hashed_by_pandas_if_its_hash_cannot_be_loaded_alone() -> None:
    """The module is not a public one, and a later pandas may have none of that name."""
    assert _output_of(_WITHOUT_THE_MODULE) == (0, "")
