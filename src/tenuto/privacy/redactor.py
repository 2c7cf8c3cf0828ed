"""The redactor: applies the privacy policy to texts on their way into a sink.

Texts are taken out of JSON values as slots and put back in the same order.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from string import ascii_uppercase
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from msgspec.structs import replace

from tenuto.errors import PrivateData, TooManyPrivateValues
from tenuto.model import Scope, Session
from tenuto.model.attachment import ATTACHMENT, shows_attachment
from tenuto.model.policy import PRESETS
from tenuto.model.privacy import NOT_SEARCHED, CustomPattern, Mode, PiiMatch, PrivacyPolicy, Sink, replace_matches
from tenuto.model.session import record_types
from tenuto.model.turn import TRACE_ID_START, is_trace_id
from tenuto.model.values import Json, JsonObject
from tenuto.privacy.crypto.machine_key import MachineKey
from tenuto.privacy.crypto.vault import Vault
from tenuto.privacy.rules.span import ON_REQUEST, PiiType

if TYPE_CHECKING:
    from tenuto.privacy.detection.external import ExternalDetector
    from tenuto.privacy.detection.finder import PiiFinder, PolicyRedactionStream
    from tenuto.privacy.rules.folding import Work

# Encoded data such as a picture or a signature, which a placeholder would break. Only a whole text counts.
_OPAQUE: Final = re.compile(r"(?:data:[\w.+-]{1,60}/[\w.+-]{1,60};base64,)?[A-Za-z0-9+/_=-]{512,}", re.ASCII)
_LEAST_OPAQUE: Final = 512
_WORDS: Final = "text"
_LEAST_DIGITS: Final = 10**6
# Names that say nothing about their values.
_NEUTRAL: Final = frozenset({"text", "content", "output", "value", "arguments"})
# Names of timestamps. Those of our time begin with 1 and have this many digits, in seconds, milliseconds and so on;
# no Chinese mobile, card or identity number that begins with 1 has that length.
_INSTANT: Final = re.compile(r"(?:(?i:_at|_ts|_ms|_time|_on|timestamp|expires)|[a-z](?:At|Ts|Ms|Time|On))\Z")
_INSTANT_DIGITS: Final = frozenset({10, 13, 16, 19})
_PLAIN_NAME: Final = 15
# Structural fields of a message part, not user text.
_STRUCTURE: Final = frozenset({"type", "id", "call_id", "name", "role", "through_id", "made_by"})
# Those of a part that shows an attachment: its name is the user's.
_OF_ATTACHMENT: Final = frozenset({"type", ATTACHMENT, "media_type", "size"})


Places: TypeAlias = "Mapping[str, Places]"
"""Where in an object this project stores values of its own, by name; an empty mapping ends a path."""
ANY: Final = "*"
"""Any name."""


class Slot(NamedTuple):
    """One text and its name, which may be empty; `house` if this project wrote it."""

    text: str
    name: str = ""
    house: bool = False


def slots(value: Json, name: str = "", house: Places | None = None) -> Iterator[Slot]:
    """Every text in a JSON value, and every number long enough to be private, in a fixed order."""
    if isinstance(value, str):
        if not _is_opaque(value):
            yield Slot(value, name, house is not None and not house)
    elif isinstance(value, dict):
        for key, inner in value.items():
            if key in _OF_ATTACHMENT and shows_attachment(value):
                continue
            if not _is_plain_key(key):
                yield Slot(key, house=house is not None and ANY in house)
            if key == _WORDS and isinstance(inner, str):
                yield Slot(inner)
            else:
                yield from slots(inner, _slot_name(key, name), house.get(key, house.get(ANY)) if house else None)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from slots(inner, name)
    elif _may_be_private_number(value, name):
        yield Slot(str(value), name)


def fill_slots(value: Json, texts: Iterator[str], name: str = "") -> Json:
    """The same value with other texts in its slots, taken in the order of `slots`."""
    if isinstance(value, str):
        return value if _is_opaque(value) else next(texts)
    if isinstance(value, dict):
        filled: dict[str, Json] = {}
        for key, inner in value.items():
            if key in _OF_ATTACHMENT and shows_attachment(value):
                filled[key] = inner
                continue
            shown = key if _is_plain_key(key) else next(texts)
            words = key == _WORDS and isinstance(inner, str)
            told = next(texts) if words else fill_slots(inner, texts, _slot_name(key, name))
            # Two keys may become the same placeholder: number the second.
            filled[shown if shown not in filled else f"{shown} ({len(filled) + 1})"] = told
        return filled
    if isinstance(value, list | tuple):
        return [fill_slots(inner, texts, name) for inner in value]
    if _may_be_private_number(value, name):
        text = next(texts)
        return value if text == str(value) else text
    return value


def part_slots(parts: Iterable[JsonObject]) -> Iterator[Slot]:
    """Every text in a message's parts, except in structural fields."""
    return (slot for part in parts for slot in slots(_content_fields(part)))


def fill_part_slots(parts: Iterable[JsonObject], texts: Iterator[str]) -> tuple[JsonObject, ...]:
    """The parts with other texts, taken in the order of `part_slots`."""
    return tuple([{**part, **fill_slots(_content_fields(part), texts)} for part in parts])


def _content_fields(part: JsonObject) -> JsonObject:
    structure = _OF_ATTACHMENT if shows_attachment(part) else _STRUCTURE
    return {name: value for name, value in part.items() if name not in structure}


def _is_opaque(text: str) -> bool:
    """Whether a text is encoded data, or the id of a trace, which every answer carries in its metadata."""
    if text.startswith(TRACE_ID_START) and is_trace_id(text):
        return True
    return len(text) >= _LEAST_OPAQUE and not text.isdigit() and _OPAQUE.fullmatch(text) is not None


def _is_plain_key(key: str) -> bool:
    """Whether a key is an identifier too short to be a private value."""
    return len(key) <= _PLAIN_NAME and key.isidentifier()


def _slot_name(key: str, outer: str) -> str:
    """The name of a value. An `id` says nothing without the name of its object: `orders id`."""
    if key == "id" and outer:
        return f"{outer} id"
    return "" if key in _NEUTRAL else key


def _may_be_private_number(value: Json, name: str) -> bool:
    """Whether a number is long enough to be private, and no timestamp."""
    if type(value) is not int or value < _LEAST_DIGITS:
        return False
    digits = str(value)
    instant = digits[0] == "1" and len(digits) in _INSTANT_DIGITS
    return not (instant and _INSTANT.search(name))


SPARE: Final = 10_000
"""Longer than a private key and than any typed value."""


class HeadAndTail(NamedTuple):
    """The first and the last part of a text, to be searched, and how many characters of each will be shown."""

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


WITHHELD = "[WITHHELD]"
AT_ONCE = 20_000
"""Characters that may be searched in the event loop."""
# A title is made of the first characters; no value but a private key is longer than `_REACH`.
_TITLED = 4_000
_REACH = 300


@dataclass(frozen=True, slots=True)
class Redaction:
    """Texts redacted for a sink, and how many values of each name were redacted."""

    texts: list[str]
    redacted: Mapping[str, int] = field(default_factory=dict)

    def changes(self, slots: Sequence[Slot]) -> bool:
        """Whether any text differs from its slot."""
        return bool(self.redacted) or any(slot.text != text for slot, text in zip(slots, self.texts, strict=True))

    def refuse_partial(self) -> None:
        """Refuse texts that were not searched to their end.

        Raises:
            TooManyPrivateValues: one of them was not.
        """
        if NOT_SEARCHED in self.redacted:
            raise TooManyPrivateValues


class TenantPolicies:
    """The policy of each tenant, and its finder, built on first use; `forms` are patterns of built-in types."""

    def __init__(
        self,
        general: PrivacyPolicy,
        tenants: Mapping[str, PrivacyPolicy] | None = None,
        forms: Sequence[CustomPattern] = (),
    ) -> None:
        self._general = general
        self._tenants = dict(tenants or {})
        self._forms = forms
        self._finders: dict[str, PiiFinder] = {}

    @property
    def general(self) -> PrivacyPolicy:
        """The policy of every other tenant."""
        return self._general

    @property
    def tenants(self) -> tuple[str, ...]:
        """Tenants with a policy of their own."""
        return tuple(sorted(self._tenants))

    def of(self, scope: Scope) -> PrivacyPolicy:
        """The policy of this tenant."""
        return self._tenants.get(scope.tenant, self._general)

    def finder(self, scope: Scope) -> PiiFinder:
        """The finder of this tenant's policy."""
        name = scope.tenant if scope.tenant in self._tenants else ""
        finder = self._finders.get(name)
        if finder is None:
            # Imported late: programs that keep texts as they are never need the detector's tables.
            from tenuto.privacy.detection.finder import PiiFinder

            finder = self._finders[name] = PiiFinder(self.of(scope), self._forms)
        return finder

    def widened(self, types: frozenset[PiiType]) -> TenantPolicies:
        """These policies with more types to look for, except those that a policy never looks for.

        They are found in the forms of every preset: which assistants took part in a session is not known here.
        """

        def widen(policy: PrivacyPolicy) -> PrivacyPolicy:
            return replace(policy, also=tuple({*policy.also, *types.difference(policy.never)}))

        forms = [form for preset in PRESETS.values() for form in preset.privacy_patterns if form.name in types]
        return TenantPolicies(widen(self._general), {name: widen(one) for name, one in self._tenants.items()}, forms)

    @property
    def any_uses_vault(self) -> bool:
        """Whether any policy needs a vault."""
        return any(policy.vaulted for policy in (self._general, *self._tenants.values()))


class ScopePolicy(NamedTuple):
    """What a tenant's policy comes to: the mode of each sink, and whether values go into a vault.

    `has_typed_placeholders` says that placeholders in stored messages were typed by users, since messages are stored
    unchanged.
    """

    modes: Mapping[Sink, Mode]
    uses_vault: bool
    has_typed_placeholders: bool

    @classmethod
    def of(cls, policy: PrivacyPolicy, *, has_vault: bool) -> ScopePolicy:
        uses_vault = has_vault and policy.vaulted
        modes = {sink: policy.mode(sink) for sink in Sink}
        return cls(modes, uses_vault, uses_vault and policy.message is not Mode.PSEUDONYM)


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
        if mode is Mode.KEEP:
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
        told, found = ends.replace_matches_in_ends(first, last)
        return Redaction([WITHHELD if found and mode is Mode.BLOCK else told], Counter(one.name for one in found))

    async def _find_matches(self, scope: Scope, slots: Sequence[Slot]) -> list[Sequence[PiiMatch]]:
        found = await self._find_own_matches(scope, slots)
        if self.outside is None:
            return found
        # A persona may have a person's name and is looked up by it: it is not sent to the detector.
        asked = [place for place, slot in enumerate(slots) if not slot.house]
        texts, inside = [slots[place].text for place in asked], [found[place] for place in asked]
        added = await self.outside.add_matches(scope, texts, inside, self.policies.finder(scope))
        for place, more in zip(asked, added, strict=True):
            found[place] = more
        return found

    async def _find_own_matches(self, scope: Scope, slots: Sequence[Slot]) -> list[Sequence[PiiMatch]]:
        """Matches of our own rules. Long texts are searched in a thread, so that they do not block the event loop."""
        finder = self.policies.finder(scope)
        if sum(len(slot.text) for slot in slots) <= self._at_once:
            return _find_in_slots(finder, slots, bounded=self._bounded)
        return await asyncio.to_thread(_find_in_slots, finder, slots, bounded=self._bounded)

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


_KEEP_ALL: Final = PrivacyPolicy(
    summary=Mode.KEEP, memory=Mode.KEEP, title=Mode.KEEP, trace=Mode.KEEP, log=Mode.KEEP, export=Mode.KEEP
)
NO_REDACTION: Final = Redactor(policies=TenantPolicies(_KEEP_ALL))
"""Keeps every text unchanged: for programs and tests without a privacy policy."""


_SHARED_TYPES: Final = frozenset({PiiType.ORDER_ID, PiiType.ADDRESS})
_BEGINNING: Final = 4
_LOWER: Final = {ord(letter): letter.lower() for letter in ascii_uppercase}
_BORDER: Final = re.compile(r"(?<!\w)(?=\S)", re.ASCII)
_WORD_GOES_ON: Final = re.compile(r"\w", re.ASCII)


def _find_in_slots(finder: PiiFinder, slots: Sequence[Slot], *, bounded: bool) -> list[Sequence[PiiMatch]]:
    """The matches of each text. An order number or address that one text shows is found in the others as well."""
    from tenuto.privacy.rules.folding import Work  # Imported with the finder at the latest.

    work = Work() if bounded else None
    found = [_find_in_slot(finder, slot, None if slot.house else work) for slot in slots]
    known = {
        slot.text[one.start : one.end]: one
        for slot, finds in zip(slots, found, strict=True)
        for one in finds
        if one.type in _SHARED_TYPES
    }
    if not known:
        return found
    from tenuto.privacy.detection.finder import merge_matches  # Imported with the finder at the latest.

    likes = {text.translate(_LOWER): one for text, one in known.items()}
    lengths: dict[str, set[int]] = {}
    for value in likes:
        lengths.setdefault(value[:_BEGINNING], set()).add(len(value))
    longest_first = {beginning: sorted(some, reverse=True) for beginning, some in lengths.items()}
    again = [list(_find_again(slot.text, likes, longest_first)) for slot in slots]
    return [
        merge_matches(slot.text, finds, more) if more else finds
        for slot, finds, more in zip(slots, found, again, strict=True)
    ]


def _find_again(text: str, likes: Mapping[str, PiiMatch], lengths: Mapping[str, list[int]]) -> Iterator[PiiMatch]:
    """Every place of a value in a text, whatever the case. One pattern of all values would be tried value by value."""
    lower, reached = text.translate(_LOWER), 0
    for place in _BORDER.finditer(text):
        start = place.start()
        for length in lengths.get(lower[start : start + _BEGINNING], ()) if start >= reached else ():
            end = start + length
            one = likes.get(lower[start:end])
            if one is not None and not _WORD_GOES_ON.match(text, end):
                reached = end
                yield replace(one, start=start, end=end)
                break


def _find_in_slot(finder: PiiFinder, slot: Slot, work: Work | None) -> Sequence[PiiMatch]:
    """The matches in a text, searched together with its name."""
    if not slot.name:
        return finder.find(slot.text, work)
    start = len(slot.name) + 2
    found = finder.find(f"{slot.name}: {slot.text}", work)
    return [replace(one, start=max(0, one.start - start), end=one.end - start) for one in found if one.end > start]
