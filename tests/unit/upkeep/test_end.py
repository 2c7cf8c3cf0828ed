"""The end of a program: work that goes on is cancelled when closing is to end."""

from __future__ import annotations

import asyncio

import tenuto


async def test_closing_waits_for_work_until_a_moment_and_no_longer() -> None:
    async with tenuto.open("memory://") as app:
        ended = asyncio.get_running_loop().create_future()

        async def work() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                ended.set_result(None)

        app.upkeep.start("title", "session", work)
        await asyncio.sleep(0)
        app.finish_by(asyncio.get_running_loop().time())

        # Without the moment, it waits for as long as the work takes.
        await app.upkeep.drain()

        assert ended.done()
