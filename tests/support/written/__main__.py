"""Makes test data of everything that this version of keyfold writes: python -m tests.support.written FOLDER."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.support.written.making import make

if __name__ == "__main__":
    make(Path(sys.argv[1]))
