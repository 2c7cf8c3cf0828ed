"""Where a long text may be cut without changing what is found in it.

Every rule needs an anchor: five digits, an @, a long word, the name of a secret. No rule reads further than `_AFTER`
characters after an anchor and `_BEFORE` before one, so a text can be cut in any gap without anchors that is longer than
both together, and the two sides give the same spans as the whole. So a stream gives the same result as one search of
the whole text, and the cost of a long text stays linear.

Without such a gap for `LIMIT` characters (a log, a table) the text is cut all the same, at a line break if possible,
and both sides are searched with a margin of the other. Such a cut depends on the text alone, so a stream still cuts at
the same places.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from heapq import merge
from typing import Final, NamedTuple

from tenuto.model.patterns import lazy_pattern
from tenuto.privacy.rules.api_keys import BLOCK, LONGEST_BLOCK, parse_key_block
from tenuto.privacy.rules.folding import INVISIBLE, blank_escapes, fold
from tenuto.privacy.rules.prechecks import NUMERALS

LIMIT: Final = 4096
_BEFORE: Final = 72
_AFTER: Final = 152
_MARGIN: Final = 72
_SIGHT: Final = 40
"""An anchor can be recognized within this many characters."""
_EVERY: Final = 64
"""A stream looks for cuts each time it has received this many characters."""

_ANCHOR: Final = lazy_pattern(
    r"""[!-~]{16,}|[0-9](?:[ \t\r\n.()/-]{0,5}[0-9]){4,}|[0-9]\.[0-9]\.[0-9]\.[0-9]|@|%40|::
    |[0-9a-f]:[0-9a-f]{1,4}:|-----|\[[a-z]|/[!-~]{0,31}[!@\#$%^&*]
    |pass|pasw|pw|psw|psk|secret|token|key|cred|kennwort|auth|basic|bearer|(?<![a-z0-9-])-u|--user|--proxy-user
    |\ -a\ |freerdp|/user:
    |mysql|mariadb|mongo|redis-cli|smbclient|docker|podman|sshpass|sqlcmd|sqlplus|expdp|impdp|sqlldr
    |ldap|zip|7z|useradd|sudo|\ login
    |log[ -]?in|wi-?fi|wlan|zugang|contrase|schl.ssel
    |wachtwoord|senha|clave|salasana|adgangskode|heslo|mdp|has.o|l.senord|jelsz|.ifre|eyj|hook|identified|dot|\[\.\]|\(\.\)
    |\[\ ?at|\(\ ?at|\x00(?:\ ?\x00){0,63}""",
    re.VERBOSE,
)
# Names and addresses have weaker anchors, so texts searched for them can be cut at fewer places.
_ASKED: Final = lazy_pattern(
    _ANCHOR.pattern
    + r"|[0-9]|order|ticket|track|invoice|booking|shipment|parcel|name|i'm|i\ am|mr|ms|dr\.?|contact|attn"
    r"|address|adress|anschrift|direcci|indirizzo|endere|morada|adres|live|living|deliver|ship|send|wohne"
    r"|habite|vivo|abito|moro"
    r"|purchase|commande|bestell|auftrag|pedido|encomenda|ordine|\#",
    re.VERBOSE,
)
_ASKED_SIGNS: Final = lazy_pattern(
    "[订訂单單票注주省区市州县镇乡街路道巷弄村里姓名人叫我患乘户栋幢座室院苑园厦寓址寄送住号з丁番로길]|’(?=m)"
)
_SIGNS: Final = lazy_pattern(
    "密|口令|授权码|提取码|秘|私钥|令牌|パス|暗証|トー|シー|キー|비밀|비번|암호|토큰|시크|키|패스|парол|Парол"
    "|护照|護照|旅券|여권|点|艾特|" + NUMERALS
)
_BEYOND: Final = lazy_pattern("[^\x00-\x7f]")


class TextChunk(NamedTuple):
    """Text to search. Spans that begin in `[start, end)` belong to this piece; the rest is context."""

    text: str
    start: int
    end: int


class Chunker:
    """Cuts a text that comes in parts. All offsets are relative to the start of the text.

    `more` adds anchors to those of the built-in rules: sorted ranges without overlaps that cover every place where a
    match may begin; `reach` is how many characters before and after its start can affect a match.
    """

    def __init__(
        self, *, asked: bool = False, more: Callable[[str], Iterator[tuple[int, int]]] | None = None, reach: int = 0
    ) -> None:
        self._more = more
        self._before, self._after = max(_BEFORE, reach), max(_AFTER, reach)
        self._margin, self._sight = max(_MARGIN, reach), max(_SIGHT, reach)
        self._anchor = _ASKED if asked else _ANCHOR
        self._signs = _ASKED_SIGNS if asked else None
        self._text = ""
        self._base = 0
        """The offset of `_text`, which holds only what is still needed."""
        self._own = 0
        """Text before this was yielded."""
        self._seen = 0
        """Anchors that begin before this are known."""
        self._candidate = 0
        """The end of the last candidate range, on which the next one depends."""
        self._last = -self._after
        """Where the last anchor ends."""
        self._zone: int | None = None
        """The start of the current range without a gap."""
        self._block = (0, 0)
        """The last private-key block, which is not cut."""

    @property
    def _length(self) -> int:
        return self._base + len(self._text)

    def add(self, text: str) -> Iterator[TextChunk]:
        """Take more text; yield the pieces that are decided."""
        self._text += text
        if self._length - self._seen >= self._sight + _EVERY:
            yield from self._cut_chunks(self._length - self._sight, final=False)

    def rest(self) -> Iterator[TextChunk]:
        """Yield everything that is left."""
        yield from self._cut_chunks(self._length, final=True)
        if self._own < self._length:
            yield self._make_chunk(self._length, 0)

    def _cut_chunks(self, horizon: int, *, final: bool) -> Iterator[TextChunk]:
        """Go through the anchors that begin before `horizon`, and cut between them."""
        since, length, blocks = self._seen, self._length, BLOCK in self._text
        for start, end in self._anchors(since):
            if start >= horizon:
                break
            if start - self._last >= self._after + self._before:
                yield from self._cut_at_gap(start - self._before)
            if self._zone is None:
                self._zone = start
            known = self._key_block_end(start, end, final=final) if blocks else end
            if known is not None and known > self._zone + LIMIT:
                yield from self._cut_at_limit(known, final=final)
            if known is None or (not final and (known >= length or known > self._zone + LIMIT)):
                # It may continue in the next text, and is searched again then.
                self._seen = max(start, self._own)
                return
            self._last = max(self._last, known)
        self._seen = max(self._own, horizon)
        if not final and horizon - self._last >= self._after + self._before:
            yield from self._cut_at_gap(horizon - self._before)

    def _anchors(self, since: int) -> Iterator[tuple[int, int]]:
        """Starts and ends of anchors from an offset on."""
        view = _anchor_view(self._text[since - self._base :], self._signs)
        spans = ((since + match.start(), since + match.end()) for match in self._anchor.finditer(view))
        yield from merge(spans, self._candidates(self._more, since)) if self._more else spans

    def _candidates(self, more: Callable[[str], Iterator[tuple[int, int]]], since: int) -> Iterator[tuple[int, int]]:
        at = max(since, self._candidate)
        for start, end in more(self._text[at - self._base :]):
            yield at + start, at + end
            # Resumed after the range was handled: do not search it again.
            self._candidate = at + end

    def _cut_at_gap(self, place: int) -> Iterator[TextChunk]:
        """Cut in a gap: neither side affects the other."""
        self._zone = None
        if place > self._own:
            yield self._make_chunk(place, 0)
            self._drop_before(place, 0)

    def _cut_at_limit(self, end: int, *, final: bool) -> Iterator[TextChunk]:
        """Cut a range without gaps that reaches to `end` until it is short enough."""
        assert self._zone is not None
        while end > self._zone + LIMIT:
            place = self._best_cut(self._zone)
            if not final and self._length < place + self._margin:
                return
            yield self._make_chunk(place, self._margin)
            self._drop_before(place, self._margin)
            self._zone, self._last = place, max(self._last, place)

    def _best_cut(self, zone: int) -> int:
        """Where to cut a range that begins at `zone`: around a key block, at a line break, at a space."""
        first, last = self._block
        most = zone + LIMIT
        if first < most < last:
            return first if first > zone else last
        for sign in ("\n", " "):
            found = self._text.rfind(sign, zone + LIMIT // 2 - self._base, most - self._base)
            if found >= 0:
                return self._base + found + 1
        return most

    def _key_block_end(self, start: int, end: int, *, final: bool) -> int | None:
        """Where the anchor ends if it opens a private-key block, or a word joined to one; None while undecided."""
        here = self._text.find(BLOCK, start - self._base, end + len(BLOCK) - self._base)
        if here < 0:
            return end
        block = parse_key_block(self._text, here)
        complete = block is not None and block.complete
        if not complete and not final and self._length < self._base + here + LONGEST_BLOCK + 128:
            return None
        if block is not None:
            end = max(end, self._base + block.end)
            self._block = (self._base + here, end)
        return end

    def _make_chunk(self, end: int, margin: int) -> TextChunk:
        text = self._text[: end + margin - self._base]
        return TextChunk(text, self._own - self._base, end - self._base)

    def _drop_before(self, place: int, margin: int) -> None:
        """Drop the text before `place`, except for a margin."""
        keep = max(self._base, place - margin)
        self._text = self._text[keep - self._base :]
        self._base, self._own = keep, place


def _anchor_view(text: str, more: re.Pattern[str] | None) -> str:
    """`text` in lower case, with a NUL for every non-ASCII anchor character, and a space for all others."""
    if not text.isascii():
        text = _SIGNS.sub(lambda match: "\0" * len(match[0]), INVISIBLE.sub("\0", fold(text)))
        text = _BEYOND.sub(" ", more.sub("\0", text) if more else text)
    return blank_escapes(text).lower()
