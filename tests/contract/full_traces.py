"""Traces with something in every field."""

from __future__ import annotations

from typing import Any

from tenuto.model import OpenTurn
from tenuto.model.prompt import Disposition, Kind, LayoutName, Manifest, ManifestEntry, Reason
from tenuto.model.turn import ToolRun, Trace, TraceSpan
from tenuto.ports import Store
from tests import samples
from tests.samples import ANN, begin, closing

MANIFEST = Manifest(
    entries=(
        ManifestEntry(kind=Kind.SYSTEM, disposition=Disposition.KEPT, reason=Reason.ALWAYS, tokens=40),
        ManifestEntry(
            kind=Kind.MESSAGE, disposition=Disposition.SUMMARISED, reason=Reason.COVERED, first=1, last=9, count=9
        ),
    ),
    total=40,
    prompt_limit=100,
    budget=120,
    reply_tokens=20,
    encoding="o200k_base",
    exact=True,
    margin=1.0,
    layout=LayoutName.CHAT,
    cacheable_tokens=40,
)


def full_trace_of(turn: OpenTurn, **fields: Any) -> Trace:
    """What is told of a turn, with something in every field."""
    given: dict[str, Any] = {
        "assistant": "npc",
        "persona": "老祖",
        "request": "家训是什么? 🎎",
        "answer": "孝悌为本",
        "model": "offline",
        "offline": True,
        "manifest": MANIFEST,
        "tools": (
            ToolRun(
                name="retrieve_evidence",
                arguments={"query": "家训"},
                output=[{"id": "E1"}],
                milliseconds=1.5,
                start=2.25,
            ),
            ToolRun(name="broken", error="tool_failed"),
        ),
        "steps": {"begin": 1.25, "model": 20.0},
        "spans": (
            TraceSpan(name="begin", start=0.0, milliseconds=1.25),
            TraceSpan(name="model", start=1.5, milliseconds=20.0, input_tokens=40, output_tokens=7, cost_nanos=12_345),
        ),
        "input_tokens": 40,
        "output_tokens": 7,
        "cost_nanos": 12_345,
        "degraded": ("recall",),
        "data": {"policy_mode": "normal", "deep": [1, {"x": None}]},
        **fields,
    }
    return samples.trace_of(turn, **given)


async def traced_turn(store: Store, session_id: str, *words: str) -> OpenTurn:
    """One whole turn with a trace."""
    turn = await begin(store, ANN, session_id, *(words or ("hello",)))
    await store.sessions.finish_turn(turn, closing("hi", trace=full_trace_of(turn)))
    return turn
