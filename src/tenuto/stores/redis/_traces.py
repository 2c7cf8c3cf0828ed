"""Traces, as the scripts keep them: the turn's number before the body, so that no two turns' are one member."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from tenuto.model.turn import Trace
from tenuto.stores.codec import Undecodable, decode_trace, encode_trace

NEWEST: Final = 2**53
"""Beyond every turn's number, and as far as Lua counts exactly."""


def write_trace(number: int, trace: Trace) -> bytes:
    """A trace under its turn's number."""
    return b"%d:%b" % (number, encode_trace(trace))


def read_traces(members: Iterable[bytes]) -> Iterator[Trace]:
    """Traces in the order given. One that is damaged counts as absent: it is not worth a conversation."""
    for member in members:
        try:
            yield decode_trace(member[member.find(b":") + 1 :])
        except Undecodable:
            continue


def span(limit: int, lowest: int, highest: int) -> tuple[int, int, int]:
    """What `traces.lua` takes. Turns count from 1; at 0 stands the key's mark."""
    return limit, min(max(1, lowest), NEWEST), min(max(0, highest), NEWEST)
