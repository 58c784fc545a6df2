"""A terminal's screen, as far as a live display uses one: renders the bytes that were written."""

from __future__ import annotations

import re

_PART = re.compile(r"\x1b\[(?P<number>[\d;?]*)(?P<code>[A-Za-z])|(?P<control>[\r\n])|(?P<text>[^\x1b\r\n]+)")


class Screen:
    """`lines` are the rows that have text; the cursor's visibility is followed too."""

    def __init__(self, columns: int) -> None:
        self._columns = columns
        self._rows: list[list[str]] = [[]]
        self._row = self._column = 0
        self.cursor_shown = True

    @property
    def lines(self) -> list[str]:
        """The rows, without those that are empty."""
        return [text for row in self._rows if (text := "".join(row).rstrip())]

    def feed(self, written: str) -> None:
        """Applies what a program wrote."""
        for part in _PART.finditer(written):
            if part["text"]:
                for character in part["text"]:
                    self._put(character)
            elif part["control"] == "\n":
                self._down()
            elif part["control"] == "\r":
                self._column = 0
            else:
                self._command(part["code"], part["number"])

    def _command(self, code: str, number: str) -> None:
        if code == "A":
            self._row = max(0, self._row - int(number or 1))
        elif code == "K":
            self._rows[self._row] = []
        elif number == "?25":
            self.cursor_shown = code == "h"
        else:
            assert code == "m", f"a display does not need ESC[{number}{code}"

    def _put(self, character: str) -> None:
        if self._column == self._columns:
            self._down()
            self._column = 0
        row = self._rows[self._row]
        row.extend(" " * (self._column + 1 - len(row)))
        row[self._column] = character
        self._column += 1

    def _down(self) -> None:
        self._row += 1
        if self._row == len(self._rows):
            self._rows.append([])
