"""Where a long text may be cut without changing what is found in it.

Every rule looks for something that cannot be overlooked: five digits, an @, a long word, the name of a secret. Call
these anchors. No rule sees further than `_AFTER` characters behind an anchor and `_BEFORE` in front of one, so in a
calm stretch longer than both together a text can be cut, and the two sides show what the whole would show. That is
how a stream comes to the same result as one look at everything, and how the cost of a long text stays linear.

Where there is no calm for `LIMIT` characters (a log, a table) the text is cut all the same, at the end of a line if
possible, and both sides are shown a margin of the other. Such a cut depends on nothing but the text itself, so a
stream still cuts where a single look does.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from tenuto.privacy.folding import INVISIBLE, fold
from tenuto.privacy.keys import BLOCK, BLOCK_PATTERN, LONGEST_BLOCK

LIMIT: Final = 4096
_BEFORE: Final = 72
_AFTER: Final = 152
_MARGIN: Final = 72
_SIGHT: Final = 40
"""An anchor shows itself within this many characters."""
_EVERY: Final = 64
"""A stream looks for cuts whenever this much has come, not at every character."""

_ANCHOR: Final = re.compile(
    r"""[!-~]{16,}|[0-9](?:[ \t\n.()/-]{0,4}[0-9]){4,}|[0-9]\.[0-9]\.[0-9]\.[0-9]|@|::
    |[0-9a-f]:[0-9a-f]{1,4}:|-----|\[[a-z]
    |pass|pw|psw|secret|token|key|cred|kennwort|auth|basic|bearer|(?<![a-z0-9-])-u|--user|--proxy-user
    |mysql|redis-cli|smbclient|docker|sshpass|eyj|hook|identified|dot|\[\.\]|\(\.\)|\[\ ?at|\(\ ?at|\x00""",
    re.VERBOSE,
)
# Names and addresses have weaker signs, so texts searched for them can be cut at fewer places.
_ASKED: Final = re.compile(
    _ANCHOR.pattern
    + r"|[0-9]|order|ticket|track|invoice|booking|shipment|parcel|name|i'm|i\ am|mr|ms|dr\.?|contact|attn",
    re.VERBOSE,
)
_ASKED_SIGNS: Final = re.compile("[订单票注주省区市州县镇乡街路道巷弄村里姓名人叫我患乘户]")
_SIGNS: Final = re.compile(
    "密|口令|授权码|秘|私钥|令牌|パス|暗証|トー|シー|キー|비밀|비번|암호|토큰|시크|키|护照|護照|旅券|여권|点|艾特|[零〇○一二三四五六七八九幺]{7,}"
)
_BEYOND: Final = re.compile("[^\x00-\x7f]")


class Piece(NamedTuple):
    """Text to look at. Spans that begin in `[start, end)` are this piece's; the rest is there for context."""

    text: str
    start: int
    end: int


class Pieces:
    """Cuts a text that comes bit by bit. All places are counted from the text's beginning."""

    def __init__(self, *, asked: bool = False) -> None:
        self._anchor = _ASKED if asked else _ANCHOR
        self._signs = _ASKED_SIGNS if asked else None
        self._text = ""
        self._base = 0
        """The place of `_text`, which keeps no more than is needed."""
        self._own = 0
        """What lies before this has been given out."""
        self._seen = 0
        """Anchors that begin before this are known."""
        self._last = -_AFTER
        """Where the last anchor ends."""
        self._zone: int | None = None
        """Where the present stretch without calm begins."""
        self._block = (0, 0)
        """The last private-key block, which is not cut."""

    @property
    def _length(self) -> int:
        return self._base + len(self._text)

    def add(self, text: str) -> Iterator[Piece]:
        """Take more text; give what can be decided now."""
        self._text += text
        if self._length - self._seen >= _SIGHT + _EVERY:
            yield from self._cut(self._length - _SIGHT, final=False)

    def rest(self) -> Iterator[Piece]:
        """Give everything that is left."""
        yield from self._cut(self._length, final=True)
        if self._own < self._length:
            yield self._piece(self._length, 0)

    def _cut(self, horizon: int, *, final: bool) -> Iterator[Piece]:
        """Go through the anchors that begin before `horizon`, and cut between them."""
        since = self._seen
        for match in self._anchor.finditer(_anchor_view(self._text[since - self._base :], self._signs)):
            start, end = since + match.start(), since + match.end()
            if start >= horizon:
                break
            if start - self._last >= _AFTER + _BEFORE:
                yield from self._at_calm(start - _BEFORE)
            if self._zone is None:
                self._zone = start
            known = self._end_of_block(start, end, final=final)
            if known is not None:
                yield from self._at_limit(known, final=final)
            if known is None or (not final and (known >= self._length or known > self._zone + LIMIT)):
                # It may go on in what comes next, and is looked at again then.
                self._seen = max(start, self._own)
                return
            self._last = known
        self._seen = max(self._own, horizon)
        if not final and horizon - self._last >= _AFTER + _BEFORE:
            yield from self._at_calm(horizon - _BEFORE)

    def _at_calm(self, place: int) -> Iterator[Piece]:
        """Cut where nothing on one side concerns the other."""
        self._zone = None
        if place > self._own:
            yield self._piece(place, 0)
            self._keep(place, 0)

    def _at_limit(self, end: int, *, final: bool) -> Iterator[Piece]:
        """Cut a stretch without calm that reaches to `end`, as often as it is too long."""
        assert self._zone is not None
        while end > self._zone + LIMIT:
            place = self._best_place(self._zone)
            if not final and self._length < place + _MARGIN:
                return
            yield self._piece(place, _MARGIN)
            self._keep(place, _MARGIN)
            self._zone = self._last = place

    def _best_place(self, zone: int) -> int:
        """Where to cut a stretch that begins at `zone`: around a key block, at a line's end, at a space."""
        first, last = self._block
        most = zone + LIMIT
        if first < most < last:
            return first if first > zone else last
        for sign in ("\n", " "):
            found = self._text.rfind(sign, zone + LIMIT // 2 - self._base, most - self._base)
            if found >= 0:
                return self._base + found + 1
        return most

    def _end_of_block(self, start: int, end: int, *, final: bool) -> int | None:
        """Where the anchor at `start` ends if it opens a private-key block; None while that cannot be told."""
        here = start - self._base
        if not self._text.startswith(BLOCK, here):
            return end
        match = BLOCK_PATTERN.match(self._text, here)
        complete = match is not None and match[0].endswith("-----") and "-----END" in match[0]
        if not complete and not final and self._length < start + LONGEST_BLOCK + 128:
            return None
        if match is not None:
            end = max(end, self._base + match.end())
            self._block = (start, end)
        return end

    def _piece(self, end: int, margin: int) -> Piece:
        text = self._text[: end + margin - self._base]
        return Piece(text, self._own - self._base, end - self._base)

    def _keep(self, place: int, margin: int) -> None:
        """Forget what lies before `place`, but for a margin."""
        keep = max(self._base, place - margin)
        self._text = self._text[keep - self._base :]
        self._base, self._own = keep, place


def _anchor_view(text: str, more: re.Pattern[str] | None) -> str:
    """`text` in lower case, with a NUL for every sign beyond ASCII that is an anchor, and a space for every other."""
    if not text.isascii():
        text = _SIGNS.sub(lambda match: "\0" * len(match[0]), INVISIBLE.sub("\0", fold(text)))
        text = _BEYOND.sub(" ", more.sub("\0", text) if more else text)
    return text.lower()
