"""Asks for pages as a browser does, and reads what is in them."""

from __future__ import annotations

import html
import re
from typing import Any, Protocol

import httpx

ACCEPT = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"


class Asked(Protocol):
    """A worker in this process, or in one of its own."""

    url: str

    def ask(self, method: str, path: str, **more: Any) -> httpx.Response:
        """Sends a request."""
        raise NotImplementedError


def browse(worker: Asked, path: str, **more: Any) -> httpx.Response:
    """Loads a page."""
    headers = {"Accept": ACCEPT, **more.pop("headers", {})}
    return worker.ask("GET", path, headers=headers, **more)


def words(page: str) -> str:
    """Returns the text of a page as a person reads it, in one line."""
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", page)).split())


def token(worker: Asked, **more: Any) -> str:
    """The token of the visitor's forms, which any of his pages with a form has."""
    said = re.search(r'name="form" value="([0-9a-f]{64})"', browse(worker, "/ui/new", **more).text)
    return said[1] if said else ""


def send(worker: Asked, path: str, **more: Any) -> httpx.Response:
    """Sends a form of the page, and follows to the page that says what was done."""
    auth = {"auth": more.pop("auth")} if "auth" in more else {}
    fields = {"form": more.pop("form", None) or token(worker, **auth), **more.pop("fields", {})}
    headers = {"Sec-Fetch-Site": "same-origin", "Origin": worker.url, **more.pop("headers", {})}
    return worker.ask("POST", path, data=fields, headers=headers, follow_redirects=True, **auth, **more)
