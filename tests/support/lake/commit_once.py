"""`python -m tests.support.lake.commit_once REQUEST`: commits one snapshot, and may be killed."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tests.support.tables import Tables, row


def main() -> None:
    """Commits the rows of the request, a file of JSON: kind, folder, settings, snapshot, and the offsets of rows."""
    request = json.loads(Path(sys.argv[1]).read_text())
    tables = Tables(request["kind"], Path(request["folder"]), **request["settings"])
    rows = [row(offset, f"k{offset}") for offset in request["offsets"]]
    tables.tables.commit(tables.version(request["snapshot"], [rows]))


if __name__ == "__main__":
    main()
