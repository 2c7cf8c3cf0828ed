"""Ids that this project makes: of sessions, messages, turns, traces, tasks, their steps and runs. They are no secrets.

They look random, so rules of keys and numbers find them behind a name such as `step_key`. An id is recognized by its
whole form; a longer value that begins with one is none, nor is what the name before it calls a secret.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from tenuto.model.patterns import lazy_pattern
from tenuto.model.turn import TRACE_ID_START, is_trace_id
from tenuto.privacy.rules.span import PiiRule, Span

# Fresh ids are UUIDs of version 7, runs of agents version 5; other versions are what others give as keys.
_UUID: Final = "[0-9a-f]{8}-[0-9a-f]{4}-[57][0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"
_ITEM: Final = "(?:msg|fc|fco|rs)_"
_DERIVED: Final = "(?:(?:s|i|m|lg|chat|lark|webhook|member|text)-|(?:conv|resp|msg|fc|fco|rs)_)[0-9a-f]{24}"
_LONGER: Final = "(?:conv_|evt_|msg_|a2a-|chatcmpl-)[0-9a-f]{32}"
_TASK: Final = "t-[0-9a-f]{24}(?:-[0-9a-f]{16})?"
_TRACE: Final = f"(?:resp_)?(?P<trace>{TRACE_ID_START}[A-Za-z0-9_-]{{20,}})"
# The key of a step is that of its task and the step's id; of an output, also the token of its worker.
_STEP: Final = r"(?::(?P<step>[A-Za-z0-9][A-Za-z0-9._-]{0,63})(?::[0-9]{1,9})?)?"
_ID: Final = lazy_pattern(
    rf"(?<![\w-])(?:(?:(?:{_ITEM})?{_UUID}|{_TASK}){_STEP}|{_DERIVED}|{_LONGER}|{_TRACE})(?![\w-]|[=@+])", re.ASCII
)
# A long mixture of letters and digits behind a colon is the secret that belongs to an id.
_RANDOM: Final = lazy_pattern(r"(?=[a-z]*[0-9])(?=[0-9]*[a-z])[a-z0-9]{16}", re.ASCII | re.IGNORECASE)
# password: …, "api_key": "…", Bearer …, the token is …, 密钥是…
_SECRET_NAME: Final = lazy_pattern(
    r"(?:pass(?:word|wort|phrase|code|wd|key)?|pwd?|secret|credential|token|bearer|basic"
    r"|(?:api|access|secret|private|auth|signing|encryption|master|client|account|license)[_ -]?key"
    r"|密码|密碼|口令|密钥|秘钥|密鑰|私钥|令牌)s?"
    r"[\"'`\])]{0,3}\s{0,3}(?:=>|:=|==?|:|：|->|is\b|was\b|是|为|為)?\s{0,3}[\"'`(\[]{0,2}(?:bearer )?\Z",
    re.IGNORECASE,
)
_REACH: Final = 48
_ASSIGNED: Final = lazy_pattern(r"[\w.-]{1,64}=[\"']?", re.ASCII)


def drop_own_ids(text: str, spans: Sequence[Span]) -> list[Span]:
    """The spans that are not inside one of our own ids."""
    ids = list(_find_own_ids(text))
    if not ids:
        return list(spans)
    return [span for span in spans if not any(_is_inside(text, span, *place) for place in ids)]


def _is_inside(text: str, span: Span, start: int, end: int) -> bool:
    """Whether a span is nothing but an id, or a part of it; a rule may take its name along: `token=`."""
    if span.rule is PiiRule.PASSWORD or span.end > end or span.end <= start:
        return False
    return span.start >= start or _ASSIGNED.fullmatch(text, span.start, start) is not None


def _find_own_ids(text: str) -> Iterator[tuple[int, int]]:
    for found in _ID.finditer(text):
        trace, step = found["trace"], found["step"]
        if trace is not None and not is_trace_id(trace):
            continue
        if step is not None and _RANDOM.search(step):
            continue
        if _SECRET_NAME.search(text, max(0, found.start() - _REACH), found.start()):
            continue
        yield found.span()
