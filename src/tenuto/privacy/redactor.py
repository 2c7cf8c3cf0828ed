"""The redactor: applies the privacy policy to texts on their way into a sink."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from tenuto.errors import PrivateData, TooManyPrivateValues
from tenuto.model import Scope, Session
from tenuto.model.privacy import NOT_SEARCHED, Mode, PiiMatch, PrivacyPolicy, Sink, replace_matches
from tenuto.model.session import record_types
from tenuto.model.values import JsonObject
from tenuto.privacy.crypto.machine_key import MachineKey
from tenuto.privacy.crypto.vault import Vault
from tenuto.privacy.json_texts import Replace, Slot, collect_slots, in_order
from tenuto.privacy.rules.span import ON_REQUEST, PiiType
from tenuto.privacy.tenant_policies import ScopePolicy, TenantPolicies

if TYPE_CHECKING:
    from tenuto.privacy.detection.external import ExternalDetector
    from tenuto.privacy.detection.finder import PolicyRedactionStream

_Walked = TypeVar("_Walked")
WITHHELD = "[WITHHELD]"
AT_ONCE = 20_000
"""Characters that may be searched in the event loop."""
SPARE: Final = 10_000
"""What is searched of a long text behind what will be shown: longer than a private key and than any typed value."""
# A title is made of the first characters; no value but a private key is longer than `_REACH`.
_TITLED = 4_000
_REACH = 300


@dataclass(frozen=True, slots=True)
class Redaction:
    """Texts redacted for a sink, and how many values of each name were redacted."""

    texts: list[str]
    redacted: Mapping[str, int] = field(default_factory=dict)

    def refuse_partial(self) -> None:
        """Refuse texts that were not searched to their end.

        Raises:
            TooManyPrivateValues: one of them was not.
        """
        if NOT_SEARCHED in self.redacted:
            raise TooManyPrivateValues


class Redactor:
    """Applies the policies, for every sink. `vault` is needed if one of them uses pseudonyms.

    Chat uses it through `TurnRedaction`, upkeep through `UpkeepRedaction`.
    """

    def __init__(
        self,
        *,
        policies: TenantPolicies,
        vault: Vault | None = None,
        machine_key: MachineKey | None = None,
        outside: ExternalDetector | None = None,
        at_once: int = AT_ONCE,
        bounded: bool = True,
    ) -> None:
        self.policies = policies
        self.vault = vault
        self.machine_key = MachineKey() if machine_key is None else machine_key
        self.outside = outside
        self._at_once = at_once
        self._bounded = bounded
        self._widened: dict[frozenset[PiiType], Redactor] = {}
        own = {tenant: policies.of(Scope(tenant=tenant)) for tenant in policies.tenants}
        self._general = ScopePolicy.of(policies.general, has_vault=vault is not None)
        self._tenants = {name: ScopePolicy.of(policy, has_vault=vault is not None) for name, policy in own.items()}

    def in_threads(self) -> Redactor:
        """The redactor for many records, which searches every text to its end and in a thread.

        One after another, short ones block the loop as well.
        """
        return self._variant(self.policies, at_once=0, bounded=False)

    def looking_for(self, types: Iterable[str]) -> Redactor:
        """The redactor that finds these types on request as well; made once for each set of them."""
        wanted = ON_REQUEST.intersection(types)
        if not wanted:
            return self
        if wanted not in self._widened:
            policies = self.policies.widened(wanted)
            self._widened[wanted] = self._variant(policies, at_once=self._at_once, bounded=self._bounded)
        return self._widened[wanted]

    def _variant(self, policies: TenantPolicies, *, at_once: int, bounded: bool) -> Redactor:
        return Redactor(
            policies=policies,
            vault=self.vault,
            machine_key=self.machine_key,
            outside=self.outside,
            at_once=at_once,
            bounded=bounded,
        )

    def for_records(self, *metadata: JsonObject) -> Redactor:
        """The redactor for titles, traces and exports of the session that has this metadata."""
        return self.looking_for({name for one in metadata for name in record_types(one)})

    @property
    def degraded(self) -> bool:
        """Whether the external detector does not answer at present."""
        return self.outside is not None and self.outside.degraded

    def policy(self, scope: Scope) -> ScopePolicy:
        """What the policy of this tenant comes to."""
        return self._tenants.get(scope.tenant, self._general)

    def mode(self, sink: Sink, scope: Scope) -> Mode:
        """How the tenant's policy treats private data for this sink."""
        return self.policy(scope).modes[sink]

    async def refuse(self, scope: Scope, slots: Sequence[Slot]) -> None:
        """Refuse texts that hold private data.

        Raises:
            PrivateData: one of them does.
            TooManyPrivateValues: they were not searched to their end.
        """
        types = {one.type for finds in await self._find_matches(scope, slots) for one in finds}
        if NOT_SEARCHED in types:
            raise TooManyPrivateValues
        if types:
            raise PrivateData(sorted(types))

    async def for_title(self, scope: Scope, text: str) -> str:
        """A text that a title may be made of, redacted before it is cut: half a value would not be found."""
        mode = self.mode(Sink.TITLE, scope)
        if mode is Mode.KEEP:
            return text
        beginning = text[:_TITLED]
        (found,) = await self._find_matches(scope, [Slot(beginning)])
        clean = replace_matches(beginning, found)
        if len(text) > _TITLED:
            # A value at the cut is not found, so the end is dropped as well.
            clean = clean[:-_REACH]
        return WITHHELD if mode is Mode.BLOCK and not text.startswith(clean) else clean

    async def names(self, scope: Scope, slots: Sequence[Slot]) -> list[str]:
        """The names of all private values in these texts, whatever the mode of the sink."""
        return [one.name for finds in await self._find_own_matches(scope, slots) for one in finds]

    def redact(self, sink: Sink, scope: Scope, text: str) -> str:
        """A text redacted for a sink without a session; pseudonyms are left to the store."""
        mode = self.mode(sink, scope)
        if mode is Mode.KEEP or mode is Mode.PSEUDONYM:
            return text
        clean = self.policies.finder(scope).redact(text)
        return clean if mode is Mode.REDACT or clean == text else WITHHELD

    async def values(self, session: Session | None) -> dict[str, str]:
        """The placeholders of the session with their values."""
        if session is None or self.vault is None or not self.policy(session.scope).uses_vault:
            return {}
        return await self.vault.values(session)

    def stream(self, scope: Scope) -> PolicyRedactionStream:
        """A stream that redacts a text chunk by chunk."""
        return self.policies.finder(scope).stream()

    async def texts(self, sink: Sink, scope: Scope, session: Session | None, slots: Sequence[Slot]) -> Redaction:
        """The texts redacted for the sink. Without a session values are redacted instead of pseudonymized."""
        mode = self.mode(sink, scope)
        if mode is Mode.KEEP or not slots:
            return Redaction([slot.text for slot in slots])
        if (sink is Sink.MODEL and mode is Mode.BLOCK) or (mode is Mode.PSEUDONYM and session is None):
            # New messages with private data were refused; what is left is older, and redacted.
            mode = Mode.REDACT
        found = await self._find_matches(scope, slots)
        if not any(found):
            return Redaction([slot.text for slot in slots])
        taken = Counter(one.name for finds in found for one in finds)
        if mode is Mode.BLOCK:
            return Redaction(
                [WITHHELD if finds else slot.text for slot, finds in zip(slots, found, strict=True)], taken
            )
        marks = await self._assign_placeholders(scope, session, slots, found) if mode is Mode.PSEUDONYM else {}
        texts = [
            replace_matches(slot.text, finds, placeholders=marks) for slot, finds in zip(slots, found, strict=True)
        ]
        return Redaction(texts, taken)

    async def redact_walk(
        self,
        sink: Sink,
        scope: Scope,
        session: Session | None,
        walk: Callable[[Replace], _Walked],
        *,
        whole: bool = False,
    ) -> tuple[_Walked, Mapping[str, int]]:
        """What a walk such as `replace_texts` gives for the sink, and how many values of each name were redacted.

        Raises:
            TooManyPrivateValues: it was not searched to its end, and has to be kept `whole`.
        """
        unchanged, slots = collect_slots(walk)
        redaction = await self.texts(sink, scope, session, slots)
        if not redaction.redacted:
            return unchanged, {}
        if whole:
            redaction.refuse_partial()
        return walk(in_order(redaction.texts)), redaction.redacted

    async def trace_text(self, scope: Scope, text: str) -> str:
        """One text as traces may hold it."""
        return (await self.texts(Sink.TRACE, scope, None, [Slot(text)])).texts[0]

    async def ends(self, sink: Sink, scope: Scope, text: str, shown: int) -> Redaction:
        """A text redacted for the sink before it is cut to `shown` characters; of a long text only both ends."""
        ends = head_and_tail(text, shown)
        mode = self.mode(sink, scope)
        if ends is None or mode is Mode.KEEP:
            return await self.texts(sink, scope, None, [Slot(text)])
        first, last = await self._find_matches(scope, [Slot(ends.first), Slot(ends.last)])
        text, found = ends.replace_matches_in_ends(first, last)
        return Redaction([WITHHELD if found and mode is Mode.BLOCK else text], Counter(one.name for one in found))

    async def _find_matches(self, scope: Scope, slots: Sequence[Slot]) -> list[Sequence[PiiMatch]]:
        found = await self._find_own_matches(scope, slots)
        if self.outside is None:
            return found
        # A persona may have a person's name and is looked up by it: it is not sent to the detector.
        asked = [place for place, slot in enumerate(slots) if not slot.internal]
        texts, inside = [slots[place].text for place in asked], [found[place] for place in asked]
        added = await self.outside.add_matches(scope, texts, inside, self.policies.finder(scope))
        for place, more in zip(asked, added, strict=True):
            found[place] = more
        return found

    async def _find_own_matches(self, scope: Scope, slots: Sequence[Slot]) -> list[Sequence[PiiMatch]]:
        """Matches of our own rules. Long texts are searched in a thread, so that they do not block the event loop."""
        # Imported late: programs that keep texts as they are never need the rules' tables.
        from tenuto.privacy.detection.finder import find_in_slots

        finder = self.policies.finder(scope)
        if sum(len(slot.text) for slot in slots) <= self._at_once:
            return find_in_slots(finder, slots, bounded=self._bounded)
        return await asyncio.to_thread(find_in_slots, finder, slots, bounded=self._bounded)

    async def _assign_placeholders(
        self, scope: Scope, session: Session | None, slots: Sequence[Slot], found: Sequence[Sequence[PiiMatch]]
    ) -> dict[tuple[str, str], str]:
        """The placeholder of each name and value that goes into the vault."""
        assert self.vault is not None, "pseudonyms without a vault are refused at the start"
        assert session is not None
        unvaulted = self.policies.of(scope).unvaulted
        wanted = [
            (one.name, slot.text[one.start : one.end])
            for slot, finds in zip(slots, found, strict=True)
            for one in finds
            if one.type not in unvaulted and one.type != NOT_SEARCHED
        ]
        return await self.vault.allot(session, wanted) if wanted else {}


class HeadAndTail(NamedTuple):
    """Both ends of a long text, to be searched before its middle is cut out, and how many characters of each will be
    shown."""

    first: str
    last: str
    shown: int
    between: int

    def replace_matches_in_ends(
        self, in_first: Sequence[PiiMatch], in_last: Sequence[PiiMatch]
    ) -> tuple[str, list[PiiMatch]]:
        """The text with placeholders for the matches, blank between its ends, and the matches in the shown part."""
        head = [one for one in in_first if one.start < self.shown]
        begin = len(self.last) - self.shown
        tail = [one for one in in_last if one.end > begin]
        # A match across the border is shown as its placeholder.
        end = max([self.shown, *(one.end for one in head)])
        begin = min([begin, *(one.start for one in tail)])
        blank = " " * (self.between + len(self.first) - end + begin)
        return f"{replace_matches(self.first[:end], head)}{blank}{replace_matches(self.last, tail, begin)}", [
            *head,
            *tail,
        ]


def head_and_tail(text: str, shown: int) -> HeadAndTail | None:
    """Both ends of a text of which `shown` characters will be left on either side; `None` where they meet."""
    looked_at = shown + SPARE
    between = len(text) - 2 * looked_at
    return HeadAndTail(text[:looked_at], text[-looked_at:], shown, between) if between > 0 else None


_KEEP_ALL: Final = PrivacyPolicy(
    summary=Mode.KEEP, memory=Mode.KEEP, title=Mode.KEEP, trace=Mode.KEEP, log=Mode.KEEP, export=Mode.KEEP
)
NO_REDACTION: Final = Redactor(policies=TenantPolicies(_KEEP_ALL))
"""Keeps every text unchanged: for programs and tests without a privacy policy."""
