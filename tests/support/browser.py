"""Asks for pages as a browser does, and reads what is in them."""

from __future__ import annotations

import html
import re
from typing import Any

import httpx

from tests.support.rest import RestWorker

ACCEPT = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"


def browse(worker: RestWorker, path: str, **more: Any) -> httpx.Response:
    """Loads a page."""
    headers = {"Accept": ACCEPT, **more.pop("headers", {})}
    return worker.ask("GET", path, headers=headers, **more)


def words(page: str) -> str:
    """Returns the text of a page as a person reads it, in one line."""
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", page)).split())
