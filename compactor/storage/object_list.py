"""Lists objects page by page, all within a time: a store can go on for ever, also with pages that hold nothing.

obstore asks for the next page itself if one is empty, and nothing ends it then but to cancel what is awaited.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from obstore.store import ObjectStore

LIST_MAX: Final = 1000
"""Objects a page, as many as all stores give: a page is a request."""


class ObjectList:
    """One list of `store`, up to `seconds` in all its requests. To be used as a context, in one thread."""

    def __init__(self, store: ObjectStore, seconds: float) -> None:
        self._store = store
        self._seconds = seconds
        self._runner = asyncio.Runner()
        # When the list has to be over, by the time of the event loop (s); None before the first request.
        self._until: float | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        self._runner.close()

    def pages(self, prefix: str, after: str | None = None) -> Iterator[Sequence[Any]]:
        """Yields the objects below the folder `prefix`, by key, from the one that follows the key `after` on.

        Raises TimeoutError, and obstore's errors.
        """
        import obstore

        stream: Any = obstore.list(self._store, prefix or None, offset=after, chunk_size=LIST_MAX)
        while (page := self._runner.run(self._next(stream))) is not None:
            yield page

    async def _next(self, stream: AsyncIterator[Sequence[Any]]) -> Sequence[Any] | None:
        if self._until is None:
            self._until = asyncio.get_running_loop().time() + self._seconds
        try:
            async with asyncio.timeout_at(self._until):
                return await anext(stream, None)
        except TimeoutError:
            raise TimeoutError(f"the list did not end within {self._seconds:g} s") from None
