"""Calls of one turn of the event loop, handed to a thread as one job."""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from tenuto.errors import StoreDamaged, StoreFull, TenutoError, Unavailable

_Asked = TypeVar("_Asked")
_Answer = TypeVar("_Answer")


class Gathered(Generic[_Asked, _Answer]):
    """Hands over together what is asked in one turn of the event loop; each caller has a future of its own."""

    def __init__(self, run: Callable[[Sequence[_Asked]], Future[list[_Answer]]]) -> None:
        self._run = run
        self._waiting: list[tuple[Future[_Answer], _Asked]] = []

    def ask(self, asked: _Asked) -> Future[_Answer]:
        """The answer to one of them."""
        loop = asyncio.get_running_loop()
        if not self._waiting:
            loop.call_soon(self.hand_over)
        future: Future[_Answer] = loop.create_future()
        self._waiting.append((future, asked))
        return future

    def hand_over(self) -> None:
        """Send what is waiting."""
        waiting, self._waiting = self._waiting, []
        if waiting:
            self._send(waiting)

    def _send(self, waiting: list[tuple[Future[_Answer], _Asked]]) -> None:
        try:
            running = self._run([asked for _, asked in waiting])
        except Unavailable as closed:
            _fail_all(waiting, closed)
        else:
            running.add_done_callback(lambda done: self._answer(waiting, done))

    def _answer(self, waiting: list[tuple[Future[_Answer], _Asked]], done: Future[list[_Answer]]) -> None:
        failure = done.exception()
        if failure is None:
            for (future, _), answer in zip(waiting, done.result(), strict=True):
                if not future.done():
                    future.set_result(answer)
        elif len(waiting) > 1 and _may_be_of_one(failure):
            for one in waiting:
                self._send([one])
        else:
            _fail_all(waiting, failure)


def _may_be_of_one(failure: BaseException) -> bool:
    """Whether one of several calls may have caused it: nothing was done, and the others must not fail with it."""
    return not isinstance(failure, TenutoError) or isinstance(failure, StoreDamaged | StoreFull)


def _fail_all(waiting: list[tuple[Future[_Answer], Any]], failure: BaseException) -> None:
    for future, _ in waiting:
        if not future.done():
            future.set_exception(failure)
            future.exception()  # The caller may have failed with another call, and await this one no more.
