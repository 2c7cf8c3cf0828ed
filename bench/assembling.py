"""Assembling a long conversation within a budget, against counting its tokens anew."""

from __future__ import annotations

from statistics import median
from time import perf_counter

from bench.ours import drafts_of
from bench.workload import Words
from tenuto.context import TokenCounter, assemble
from tenuto.model import Message
from tenuto.model.policy import ContextPolicy
from tenuto.model.prompt import PromptInputs, PromptPolicy
from tenuto.ports import utc_now


def measure_assembling(messages: int = 500, budget: int = 8192, rounds: int = 15) -> tuple[float, float]:
    """Milliseconds to assemble a long history within a budget, and to count its tokens anew, interleaved."""
    counter, when, words = TokenCounter(), utc_now(), Words()
    drafts = [draft for _ in range(messages // 2) for draft in drafts_of(words.turn())]
    history = tuple(
        counter.with_count(
            Message(id=draft.id, role=draft.role, sent_at=when, parts=draft.parts, seq=n + 1, turn=n // 2 + 1)
        )
        for n, draft in enumerate(drafts)
    )
    inputs = PromptInputs(system="You help.", history=history, question="And then?")
    policy, context = PromptPolicy(budget=budget), ContextPolicy()
    assembling: list[float] = []
    counting: list[float] = []
    for _ in range(rounds):
        began = perf_counter()
        assemble(inputs, policy, context, counter)
        between = perf_counter()
        for message in history:
            counter.count(message.text)
        assembling.append(between - began)
        counting.append(perf_counter() - between)
    return median(assembling) * 1000, median(counting) * 1000
