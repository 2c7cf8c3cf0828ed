"""An erasure in steps that are small enough for others to get a turn in between, and what they come to."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from tenuto.model import EraseResult


async def erase_in_batches(step: Callable[[int], Awaitable[EraseResult]], limit: int, stride: int) -> EraseResult:
    """Erase up to `limit` sessions, at most `stride` in one step. The step that leaves none removes all else."""
    left, steps = max(0, limit), list[EraseResult]()
    while not steps or (steps[-1].more and left):
        size = min(stride, left)
        steps.append(await step(size))
        left -= size
    return EraseResult(
        gone=tuple(item for done in steps for item in done.gone),
        messages=sum(done.messages for done in steps),
        traces=sum(done.traces for done in steps),
        states=sum(done.states for done in steps),
        quarantined=sum(done.quarantined for done in steps),
        more=steps[-1].more,
    )
