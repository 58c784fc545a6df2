"""Asks a worker what `requests` has, and keeps what it answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import httpx
from msgspec import Struct

from tests.support.connect.requests import CLASS, PLUGIN, REQUESTS, Ask
from tests.support.kafka import wait_until

TIMEOUT_S: Final = 90.0
_METHODS: Final = "OPTIONS"


class Answer(Struct, frozen=True):
    """What a worker has answered: `body` is JSON's value, a text where it is none, None where there is no body."""

    request: str
    status: int
    kind: str | None
    location: str | None
    body: Any


class Sink(Struct, frozen=True):
    """A worker's own sink: its class, and the shorter name by which it is known as well."""

    class_name: str
    plugin: str

    def named_in(self, text: str) -> str:
        """Returns `text` with the sink's names in the places that are kept for them."""
        return text.replace(CLASS, self.class_name).replace(PLUGIN, self.plugin)


def ask_all(url: str, sink: Sink) -> Iterator[Answer]:
    """Asks everything in its order; what a request begins is waited for before the next."""
    with httpx.Client(base_url=url, timeout=TIMEOUT_S) as client:
        for one in REQUESTS:
            answer = ask(client, url, sink, one)
            yield answer
            if one.settle is not None and answer.status < httpx.codes.BAD_REQUEST:
                wait_until(_settled(client, *one.settle), f"after {one.method} {one.path}: {one.settle}", TIMEOUT_S)


def ask(client: httpx.Client, url: str, sink: Sink, one: Ask) -> Answer:
    """Asks once."""
    headers = {name: text for name, text in (("Content-Type", one.kind), ("Accept", one.accept)) if text is not None}
    body = None if one.body is None else sink.named_in(one.body)
    found = client.request(one.method, sink.named_in(one.path), content=body, headers=headers)
    location = found.headers.get("location")
    named = " ".join(filter(None, [one.method, one.path, one.kind, one.accept and f"Accept: {one.accept}", one.body]))
    return Answer(
        request=named,
        status=found.status_code,
        kind=(found.headers.get("content-type") or "").partition(";")[0] or None,
        location=None if location is None else location.replace(url, ""),
        body=_body(one, found),
    )


def _body(one: Ask, found: httpx.Response) -> Any:
    if not found.content:
        return None
    if one.method == _METHODS:
        return sorted(word.strip() for word in found.text.split(","))
    try:
        return found.json()
    except ValueError:
        return found.text


def _settled(client: httpx.Client, name: str, state: str) -> Callable[[], bool]:
    """Returns whether connector and tasks are in `state`, for "offsets" and "topics" whether there are any.

    Of a connector that is deleted ("gone") Kafka Connect still answers the status for a moment.
    """

    def is_settled() -> bool:
        if state == "topics":
            return bool(client.get(f"/connectors/{name}/topics").json().get(name, {}).get("topics"))
        if state == "offsets":
            found = client.get(f"/connectors/{name}/offsets")
            return found.status_code == httpx.codes.OK and bool(found.json()["offsets"])
        found = client.get(f"/connectors/{name}/status")
        if state == "gone" or found.status_code != httpx.codes.OK:
            return state == "gone" and found.status_code == httpx.codes.NOT_FOUND
        tasks = [one["state"] for one in found.json()["tasks"]]
        there = [found.json()["connector"]["state"], *tasks]
        has_tasks = bool(tasks) or state != "RUNNING"  # Kafka Connect makes none for what is paused from the start
        return has_tasks and all(one == state for one in there)

    return is_settled
