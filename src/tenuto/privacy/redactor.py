"""One redactor for all sinks: texts go in, and come out as the policy of the sink wants them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

from msgspec.structs import replace

from tenuto.errors import PrivateData
from tenuto.model import Scope, Session
from tenuto.model.privacy import Mode, PiiMatch, PrivacyPolicy, Sink, replace_matches
from tenuto.privacy.crypto.vault import Vault
from tenuto.privacy.text_slots import Slot
from tenuto.privacy.truncation import head_and_tail

if TYPE_CHECKING:
    from tenuto.privacy.detection.external import ExternalDetector
    from tenuto.privacy.detection.finder import PiiFinder

WITHHELD = "[WITHHELD]"
# Characters that are looked through in a millisecond or few.
_AT_ONCE = 20_000
# A title is made of the beginning; and no value is longer than this, but for keys that fill pages.
_TITLED = 4_000
_REACH = 300


class TextStream(Protocol):
    """A text that comes in chunks and goes out changed; `taken` counts what was taken out of it, by name."""

    @property
    def redacted(self) -> Mapping[str, int]:
        """How many of each name so far."""
        ...

    def feed(self, chunk: str) -> str:
        """Take a chunk; give back what is decided by now."""
        ...

    def flush(self) -> str:
        """Give back what was held, at the end."""
        ...


@dataclass(frozen=True, slots=True)
class Redaction:
    """Texts as a sink may have them, and what was taken out of them: how many of each name."""

    texts: list[str]
    taken: Mapping[str, int] = field(default_factory=dict)

    def changes(self, slots: Sequence[Slot]) -> bool:
        """Whether any text differs from the one it was made of."""
        return bool(self.taken) or any(slot.text != text for slot, text in zip(slots, self.texts, strict=True))


class TenantPolicies:
    """The policy of each tenant, and the finder that goes with it, built when first asked for."""

    def __init__(self, general: PrivacyPolicy, tenants: Mapping[str, PrivacyPolicy] | None = None) -> None:
        self._general = general
        self._tenants = dict(tenants or {})
        self._finders: dict[str, PiiFinder] = {}

    @property
    def tenants(self) -> tuple[str, ...]:
        """Those that have a policy of their own."""
        return tuple(sorted(self._tenants))

    def of(self, scope: Scope) -> PrivacyPolicy:
        """What holds for this tenant."""
        return self._tenants.get(scope.tenant, self._general)

    def finder(self, scope: Scope) -> PiiFinder:
        """What finds private data for this tenant."""
        name = scope.tenant if scope.tenant in self._tenants else ""
        finder = self._finders.get(name)
        if finder is None:
            finder = self._finders[name] = self._build_finder(self.of(scope))
        return finder

    def _build_finder(self, policy: PrivacyPolicy) -> PiiFinder:
        # The detector's tables: programs whose words are kept as they are never need them.
        from tenuto.privacy.detection.finder import PiiFinder

        return PiiFinder(policy)

    @property
    def any_uses_vault(self) -> bool:
        """Whether anybody's policy needs a vault."""
        return any(policy.vaulted for policy in (self._general, *self._tenants.values()))


class Redactor:
    """Applies the policies, for every sink. `vault` is needed where one of them asks for pseudonyms.

    `TurnRedaction` and `UpkeepRedaction` are what chat and upkeep need of it.
    """

    def __init__(
        self, *, policies: TenantPolicies, vault: Vault | None = None, outside: ExternalDetector | None = None
    ) -> None:
        self._policies = policies
        self._vault = vault
        self._outside = outside

    @property
    def policies(self) -> TenantPolicies:
        """What holds for whom."""
        return self._policies

    @property
    def outside(self) -> ExternalDetector | None:
        """The outside detector that is asked as well, if there is one."""
        return self._outside

    @property
    def vault(self) -> Vault | None:
        """Where the values behind pseudonyms are."""
        return self._vault

    @property
    def degraded(self) -> bool:
        """Whether the outside detector does not answer at present."""
        return self._outside is not None and self._outside.degraded

    def mode(self, sink: Sink, scope: Scope) -> Mode:
        """What happens to private data on the way into a sink."""
        return self._policies.of(scope).mode(sink)

    async def refuse(self, scope: Scope, slots: Sequence[Slot]) -> None:
        """Refuse texts that hold anything private.

        Raises:
            PrivateData: they do.
        """
        types = {one.type for finds in await self._find_matches(scope, slots) for one in finds}
        if types:
            raise PrivateData(sorted(types))

    async def for_title(self, scope: Scope, text: str) -> str:
        """A text that a title may be made of. It will be cut, and half a value is no longer found: it goes before."""
        mode = self.mode(Sink.TITLE, scope)
        if mode is Mode.KEEP:
            return text
        clean = await self._redact_text(scope, text[:_TITLED])
        if len(text) > _TITLED:
            # What was cut through is no longer found, so the end goes as well.
            clean = clean[:-_REACH]
        return WITHHELD if mode is Mode.BLOCK and not text.startswith(clean) else clean

    async def names(self, scope: Scope, slots: Sequence[Slot]) -> list[str]:
        """What is in these texts, by name; whatever the policy would do with it."""
        return [one.name for finds in await self._find_own_matches(scope, slots) for one in finds]

    def redact(self, sink: Sink, scope: Scope, text: str) -> str:
        """A text on its way to a sink that has no session at hand; pseudonyms are left to the store."""
        mode = self.mode(sink, scope)
        if mode is Mode.KEEP or mode is Mode.PSEUDONYM:
            return text
        clean = self._policies.finder(scope).redact(text)
        return clean if mode is Mode.REDACT or clean == text else WITHHELD

    def uses_vault(self, scope: Scope) -> bool:
        """Whether values of this tenant go into vaults."""
        return self._vault is not None and self._policies.of(scope).vaulted

    def has_typed_placeholders(self, scope: Scope) -> bool:
        """Whether marks in stored words were typed by a user: such words are stored as they were said."""
        return self.uses_vault(scope) and self.mode(Sink.MESSAGE, scope) is not Mode.PSEUDONYM

    async def values(self, session: Session | None) -> dict[str, str]:
        """Every mark of the session, and the value behind it."""
        if session is None or self._vault is None or not self.uses_vault(session.scope):
            return {}
        return await self._vault.values(session)

    def stream(self, scope: Scope) -> TextStream:
        """Redacts a text that comes in chunks."""
        return self._policies.finder(scope).stream()

    async def texts(self, sink: Sink, scope: Scope, session: Session | None, slots: Sequence[Slot]) -> Redaction:
        """The texts as the sink may have them. Without a session there are no pseudonyms, and values are redacted."""
        mode = self.mode(sink, scope)
        if mode is Mode.KEEP:
            return Redaction([slot.text for slot in slots])
        if (sink is Sink.MODEL and mode is Mode.BLOCK) or (mode is Mode.PSEUDONYM and session is None):
            # A question that holds private data was refused; what is left to show is older than that.
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
        texts = [replace_matches(slot.text, finds, marks=marks) for slot, finds in zip(slots, found, strict=True)]
        return Redaction(texts, taken)

    async def ends(self, sink: Sink, scope: Scope, text: str, shown: int) -> Redaction:
        """A text as the sink may have it that will be cut to so many characters; of a long one, both ends alone."""
        ends = head_and_tail(text, shown)
        mode = self.mode(sink, scope)
        if ends is None or mode is Mode.KEEP:
            return await self.texts(sink, scope, None, [Slot(text)])
        first, last = await self._find_matches(scope, [Slot(ends.first), Slot(ends.last)])
        told, found = ends.replace_matches_in_ends(first, last)
        return Redaction([WITHHELD if found and mode is Mode.BLOCK else told], Counter(one.name for one in found))

    async def _redact_text(self, scope: Scope, text: str) -> str:
        (found,) = await self._find_matches(scope, [Slot(text)])
        return replace_matches(text, found) if found else text

    async def _find_matches(self, scope: Scope, slots: Sequence[Slot]) -> list[Sequence[PiiMatch]]:
        found = await self._find_own_matches(scope, slots)
        if self._outside is None:
            return found
        # A character of ours may have a name like anybody's, and is found again by it.
        asked = [place for place, slot in enumerate(slots) if not slot.house]
        texts, inside = [slots[place].text for place in asked], [found[place] for place in asked]
        added = await self._outside.add_matches(scope, texts, inside, self._policies.finder(scope))
        for place, more in zip(asked, added, strict=True):
            found[place] = more
        return found

    async def _find_own_matches(self, scope: Scope, slots: Sequence[Slot]) -> list[Sequence[PiiMatch]]:
        """What we see ourselves. A long text takes a while, which other turns need not wait for."""
        finder = self._policies.finder(scope)
        if sum(len(slot.text) for slot in slots) <= _AT_ONCE:
            return [_find_in_slot(finder, slot) for slot in slots]
        return await asyncio.to_thread(lambda: [_find_in_slot(finder, slot) for slot in slots])

    async def _assign_placeholders(
        self, scope: Scope, session: Session | None, slots: Sequence[Slot], found: Sequence[Sequence[PiiMatch]]
    ) -> dict[tuple[str, str], str]:
        """The mark of each name and value that is not simply redacted."""
        assert self._vault is not None, "pseudonyms without a vault are refused at the start"
        assert session is not None
        unvaulted = self._policies.of(scope).unvaulted
        wanted = [
            (one.name, slot.text[one.start : one.end])
            for slot, finds in zip(slots, found, strict=True)
            for one in finds
            if one.type not in unvaulted
        ]
        return await self._vault.allot(session, wanted) if wanted else {}


_KEEP_ALL: Final = PrivacyPolicy(
    past=Mode.KEEP,
    summary=Mode.KEEP,
    memory=Mode.KEEP,
    title=Mode.KEEP,
    trace=Mode.KEEP,
    log=Mode.KEEP,
    export=Mode.KEEP,
)
NO_REDACTION: Final = Redactor(policies=TenantPolicies(_KEEP_ALL))
"""Keeps every text as it is: for programs and tests that leave privacy to others."""


def _find_in_slot(finder: PiiFinder, slot: Slot) -> Sequence[PiiMatch]:
    """What is private in a text; its name is read with it, and stays."""
    if not slot.name:
        return finder.find(slot.text)
    start = len(slot.name) + 2
    found = finder.find(f"{slot.name}: {slot.text}")
    return [replace(one, start=max(0, one.start - start), end=one.end - start) for one in found if one.end > start]
