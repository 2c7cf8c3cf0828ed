"""Assembles a prompt within one hard budget, and records in a manifest what became of each candidate.

Priorities: the system prompt and the question; the newest turn; the summary; preferences; then evidence and memories
against older turns. Older turns always leave a share of the prompt to recall, so that the window does not change size
with every question; recall may use what older turns leave over.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain, groupby
from operator import attrgetter, itemgetter
from typing import Final

from msgspec.structs import replace

from tenuto.context.layout import Layout, PromptPage, PromptParts, layout_for
from tenuto.context.media import fit_media
from tenuto.context.tokens import TokenCounter, output_text, prompt_token_limit, truncate_text
from tenuto.context.window import Turn, TurnReader, Window, WindowEntry, WindowFiller, spans
from tenuto.errors import InstructionsTooLong, InvalidSetting
from tenuto.model.attachment import MEDIA_PARTS, iter_media_parts
from tenuto.model.generation import Summary
from tenuto.model.media import LEFT_OUT, count_left_out, iter_parts, shows_media
from tenuto.model.message import INPUT, Message, Role, readable_part, text_part
from tenuto.model.policy import ContextPolicy
from tenuto.model.prompt import (
    Disposition,
    Kind,
    Language,
    Manifest,
    ManifestEntry,
    Piece,
    Prompt,
    PromptInputs,
    PromptPolicy,
    Reason,
    RecallPosition,
    digest_text,
    digest_texts,
)
from tenuto.model.turn import OpenTurn
from tenuto.model.values import JsonObject, to_text

# Looked up once, since there is an entry for each message.
_MESSAGE: Final = Kind.MESSAGE
_seq: Final = attrgetter("seq")
_AS_IT_FITS: Final = Disposition.KEPT
_SHORTENED: Final = Disposition.CUT
_FITS: Final = Reason.FITS
# Of messages that are cut: their text is shortened. Where they have other reasons, parts of other kinds are left out.
_SHORTENING: Final = (Reason.MESSAGE_CAP, Reason.OVER_BUDGET, Reason.WINDOW_CHARACTERS)
_RECALL_KINDS: Final = (Kind.MEMORY, Kind.EVIDENCE, Kind.CHAT_CONTEXT)


class ManifestBuilder:
    """The entries of one prompt, in the order of its parts."""

    def __init__(self, counter: TokenCounter, policy: PromptPolicy, prompt_limit: int, digest_key: bytes = b"") -> None:
        self._counter = counter
        self._digest_key = digest_key
        self._policy = policy
        self._prompt_limit = prompt_limit
        self._entries: dict[Kind, list[ManifestEntry]] = {kind: [] for kind in _kind_order(policy.recall_position)}
        self.cut = False
        """Whether something has less text in the prompt than was said."""

    def add(
        self,
        kind: Kind,
        disposition: Disposition,
        reason: Reason,
        tokens: int,
        uncut_tokens: int | None = None,
        piece: Piece | None = None,
        text: str = "",
    ) -> None:
        """Record a part that is no message; `text` is all of it, also if the prompt has less."""
        text = piece.text if piece is not None else text
        entry = ManifestEntry(
            kind=kind,
            disposition=disposition,
            reason=reason,
            tokens=tokens,
            uncut_tokens=tokens if uncut_tokens is None else uncut_tokens,
            id=piece.id if piece is not None else None,
            score=piece.score if piece is not None else None,
            digest=digest_text(text, self._digest_key) if text and kind is not Kind.CHAT_CONTEXT else "",
        )
        self._entries[kind].append(entry)
        self.cut = self.cut or (disposition is _SHORTENED and reason in _SHORTENING)

    def covering(self, first: int, last: int, count: int) -> None:
        """Record which messages the summary covers, loaded or not."""
        summaries = self._entries[Kind.SUMMARY]
        self._entries[Kind.SUMMARY] = [replace(entry, first=first, last=last, count=count) for entry in summaries]

    def stretch(self, messages: Sequence[Message], disposition: Disposition, reason: Reason) -> None:
        """Record consecutive messages that are not in the prompt, with their stored token counts."""
        if messages:
            entry = ManifestEntry(
                kind=_MESSAGE,
                disposition=disposition,
                reason=reason,
                uncut_tokens=sum([message.tokens for message in messages]),
                first=messages[0].seq,
                last=messages[-1].seq,
                count=len(messages),
            )
            self._entries[_MESSAGE].append(entry)

    def window(self, history: Sequence[Message], window: Window) -> None:
        """Record every message of the history: included ones one by one, the others in ranges."""
        if window.verbatim is not None:
            messages, around = window.verbatim.messages, window.verbatim.around
            digests = digest_texts(_verbatim_texts(messages), self._digest_key)
            self._entries[_MESSAGE] += [
                ManifestEntry(
                    kind=_MESSAGE,
                    disposition=_AS_IT_FITS,
                    reason=_FITS,
                    tokens=message.tokens + around,
                    uncut_tokens=message.tokens + around,
                    id=message.id,
                    first=message.seq,
                    last=message.seq,
                    digest=digest,
                )
                for message, digest in zip(messages, digests, strict=True)
            ]
            return
        places: list[tuple[int, Turn | tuple[int, Reason]]] = [(turn.start, turn) for turn in window.turns]
        places += [(start, (end, reason)) for start, end, reason in window.omitted]
        for start, what in sorted(places, key=itemgetter(0)):
            if isinstance(what, Turn):
                self._add_turn(history, what)
            else:
                left_out = history[start : what[0]]
                self.stretch(left_out, Disposition.DROPPED, what[1])
                # The talk goes on without its oldest turns; instructions were to stay.
                is_full = what[1] in _SHORTENING
                self.cut = self.cut or (is_full and any(message.role is Role.SYSTEM for message in left_out))

    def _add_turn(self, history: Sequence[Message], turn: Turn) -> None:
        self.cut = self.cut or any(one.reason in _SHORTENING for one in turn.entries)
        if not turn.hidden:
            self._entries[_MESSAGE] += self._message_entries(turn.entries)
            return
        visible = {one.message.seq: one for one in turn.entries}
        reasons = {message.seq: reason for message, reason in turn.hidden}
        for message in history[turn.start : turn.end]:
            one = visible.get(message.seq)
            if one is None:
                self.stretch([message], Disposition.DROPPED, reasons[message.seq])
            else:
                self._entries[_MESSAGE] += self._message_entries((one,))

    def _message_entries(self, messages: Sequence[WindowEntry]) -> list[ManifestEntry]:
        return [
            ManifestEntry(
                kind=_MESSAGE,
                disposition=one.disposition,
                reason=one.reason,
                tokens=one.tokens + one.around,
                uncut_tokens=one.uncut_tokens,
                id=one.message.id,
                first=one.message.seq,
                last=one.message.seq,
                digest=digest_text(message_text(one.message), self._digest_key),
            )
            for one in messages
        ]

    def manifest(self, page: PromptPage) -> Manifest:
        """The finished manifest of this page."""
        entries = tuple(chain.from_iterable(self._entries.values()))
        total = sum([entry.tokens for entry in entries])
        changing = [each for kind, each in self._entries.items() if kind not in page.cacheable_kinds]
        return Manifest(
            entries=entries,
            total=total,
            cacheable_tokens=total - sum([entry.tokens for each in changing for entry in each]) + page.cacheable_frame,
            prompt_limit=self._prompt_limit,
            budget=self._policy.budget_tokens,
            reply_tokens=self._policy.reply_tokens,
            encoding=self._counter.encoding,
            exact=self._counter.exact,
            margin=self._counter.margin,
            layout=self._policy.layout,
        )


def message_text(message: Message) -> str:
    """What a model reads of a message: its words, calls with their arguments, results."""
    texts: list[str] = []
    for part in message.parts:
        match part["type"]:
            case "text" if LEFT_OUT not in part:
                texts.append(part["text"])
            case "tool_call":
                texts.append(f"{part.get('name', '')} {to_text(part.get('arguments'))}")
            case "tool_result":
                texts.append(output_text(part.get("output"), placeholders=False))
    return "\n".join(texts)


def _verbatim_texts(messages: Sequence[Message]) -> list[str]:
    # Nearly every message is one text.
    return [
        (message.parts[0].get("text") if len(message.parts) == 1 else "") or message_text(message)
        for message in messages
    ]


@cache
def _kind_order(position: RecallPosition) -> tuple[Kind, ...]:
    early, late = (_RECALL_KINDS, ()) if position is RecallPosition.BEFORE_WINDOW else ((), _RECALL_KINDS)
    return (Kind.SYSTEM, Kind.PREFERENCES, Kind.SUMMARY, *early, Kind.MESSAGE, *late, Kind.QUESTION, Kind.FRAME)


# A budget must leave at least this much for a question; less is a mistake in the settings.
LEAST_QUESTION: Final = 64
# A text that would keep fewer tokens than this is dropped instead of cut.
LEAST_CUT: Final = 32
# The usual dispositions; looked up once, since access to an enumeration's member is slow.
_ALWAYS: Final = (Disposition.KEPT, Reason.ALWAYS)
_KEPT: Final = (Disposition.KEPT, Reason.FITS)
_CUT: Final = (Disposition.CUT, Reason.OVER_BUDGET)
_NO_MEDIA: Final = (Disposition.CUT, Reason.NO_MEDIA)


def check_budget(
    policy: PromptPolicy, system: str, counter: TokenCounter, language: Language = Language.ENGLISH
) -> None:
    """Refuse a budget that the system prompt fills, before the first question.

    Raises:
        InvalidSetting: beside the system prompt and the layout there is no room for a question.
    """
    layout = layout_for(policy.layout, language, counter, {}, policy.recall_position)
    overhead = counter.count(system) + layout.reserve() + LEAST_QUESTION
    if overhead > prompt_token_limit(policy, counter):
        raise InvalidSetting(
            "budget",
            f"{policy.budget_tokens} tokens with {policy.reply_tokens} for the reply are too few: system prompt, "
            f"layout and a question of {LEAST_QUESTION} tokens take {overhead}; {policy.raised_by} raises it",
        )


def inputs_from_turn(
    turn: OpenTurn,
    system: str,
    question: str | None = None,
    question_tokens: int = 0,
    talk: Sequence[Message] | None = None,
    summary: Summary | None = None,
) -> PromptInputs:
    """Question, history and speaker of a begun turn. The rest is added with `msgspec.structs.replace`.

    The question is what the turn's messages end with, or the live text if the stored one differs; a regeneration
    repeats the last user message. Other messages of the turn are the end of the history. `question_tokens` is the
    question's token count if the caller has counted it: stored counts are not trusted. `talk` is the turn's window
    without summaries, and `summary` covers what precedes it.
    """
    window = turn.window if talk is None else talk
    own = turn.user_messages or last_input(window)
    question_messages = last_words(own)
    before, question_seqs = len(window) - len(question_messages), [message.seq for message in question_messages]
    if [message.seq for message in window[before:]] == question_seqs:
        history = window[:before]
    else:
        # Other messages were appended meanwhile.
        history = [message for message in window if message.seq not in question_seqs]
    return PromptInputs(
        question="\n".join([message.text for message in question_messages]) if question is None else question,
        question_parts=parts_of_question(question_messages) if question is None else (),
        question_tokens=question_tokens,
        input_start=own[0].seq if len(own) > len(question_messages) else 0,
        system=system,
        summary=summary.text if summary is not None else "",
        covered_instructions=summary.instructions if summary is not None else (),
        summarized_through=summary.through if summary is not None else 0,
        summarized_from=summary.since if summary is not None else 1,
        summarized_messages=summary.messages if summary is not None else 0,
        window_start=_begin_of_context(turn),
        history=tuple(history),
        persona=turn.scope.persona,
        speaker=own[-1].speaker if own else None,
    )


def _begin_of_context(turn: OpenTurn) -> int:
    """The first message that is context: where nothing is missing before the window, that with which it begins. An edit
    leaves a gap in the numbers, which a session that evicts its oldest messages has, too."""
    retention, window = turn.session.retention, turn.window
    evicts = retention.max_turns is not None or (
        retention.max_messages is not None and turn.session.messages >= retention.max_messages
    )
    if evicts or not window or turn.session.messages > len(window):
        return turn.context_start
    return max(turn.context_start, window[0].seq)


def assemble(
    inputs: PromptInputs, policy: PromptPolicy, context: ContextPolicy, counter: TokenCounter, digest_key: bytes = b""
) -> Prompt:
    """The prompt for one turn, within its budget, and its manifest. Pure: the same in, the same out.

    With a key, the manifest has a digest of each part.

    Raises:
        InvalidSetting: the system prompt alone does not leave room for a question.
        InstructionsTooLong: the instructions or the system messages of the turn do not fit beside it.
    """
    names, speakers = inputs.display_names, inputs.speaker_names
    layout = layout_for(policy.layout, inputs.language, counter, names, policy.recall_position, speakers)
    return _PromptAssembly(inputs, policy, context, counter, layout, digest_key).prompt()


@dataclass(slots=True)
class _PromptAssembly:
    inputs: PromptInputs
    policy: PromptPolicy
    context: ContextPolicy
    counter: TokenCounter
    layout: Layout
    digest_key: bytes = b""
    left: int = 0
    input_system_tokens: int = 0

    def prompt(self) -> Prompt:
        prompt_limit = prompt_token_limit(self.policy, self.counter)
        self.left = prompt_limit - self.layout.reserve(self.inputs.speaker)
        manifest = ManifestBuilder(self.counter, self.policy, prompt_limit, self.digest_key)
        system = self._add_system(manifest)
        self._reserve_input_system()
        media = bool(self.inputs.question_parts) or shows_media(self.inputs.history)
        if media:
            room = max(0, self.left - self.input_system_tokens - LEAST_QUESTION)
            self.inputs = fit_media(
                self.inputs, self.layout.name, self.counter.media_tokens, self.counter.count_message, room
            )
        question, question_parts = self._add_question(manifest)
        summarised, irrelevant, filler = self._split_history(prompt_limit)
        inputs = self.inputs
        recalls = inputs.evidence is not None or inputs.memories is not None or bool(inputs.chat_context)
        share = int(self.policy.recall_share * prompt_limit) if recalls else 0
        summary, preferences, window = self._fill_conversation(manifest, filler, share)
        evidence = self._add_snippets(manifest, Kind.EVIDENCE, self.inputs.evidence)
        memories = self._add_snippets(manifest, Kind.MEMORY, self.inputs.memories)
        around = self._add_snippets(manifest, Kind.CHAT_CONTEXT, self.inputs.chat_context)
        self._record_history(manifest, summarised, irrelevant, window, bool(summary))
        page = PromptPage(self.counter)
        parts = PromptParts(
            system=system,
            preferences=preferences,
            summary=summary,
            memories=memories,
            evidence=evidence,
            chat_context=around[::-1],
            window=window.entries,
            question=question,
            question_parts=question_parts,
            speaker=self.inputs.speaker,
        )
        self.layout.write(page, parts)
        manifest.add(Kind.FRAME, *_ALWAYS, page.frame)
        messages = page.messages()
        return Prompt(
            messages=messages,
            manifest=manifest.manifest(page),
            cacheable_messages=page.cacheable_messages,
            cut=manifest.cut,
            media=sum([1 for _ in iter_media_parts(iter_parts(messages))]) if media else 0,
            media_left_out=count_left_out(iter_parts(messages)) if media else 0,
        )

    def _fill_conversation(
        self, manifest: ManifestBuilder, filler: WindowFiller, share: int
    ) -> tuple[str, str, Window]:
        """Summary, preferences and window; mostly all of them fit, beside the share of recall."""
        inputs, counter = self.inputs, self.counter
        summary_tokens = counter.count_recurring(inputs.summary) if inputs.summary else 0
        preference_tokens = counter.count(inputs.preferences) if inputs.preferences else 0
        window = None if inputs.isolated else filler.take_all(self.left - summary_tokens - preference_tokens - share)
        newest = (
            filler.newest(self.left, inputs.persona if inputs.isolated else None) if window is None else window.cost
        )
        self.left -= newest
        summary = self._add_text(manifest, Kind.SUMMARY, inputs.summary, summary_tokens)
        preferences = self._add_text(manifest, Kind.PREFERENCES, inputs.preferences, preference_tokens)
        if window is None:
            window = filler.older(self.left + newest - share, self.policy.trim_share)
            self.left -= window.cost - newest
        return summary, preferences, window

    def _add_system(self, manifest: ManifestBuilder) -> str:
        text, instructions = self.inputs.system, self.inputs.instructions
        tokens = self.counter.count_fixed(text)
        room = self.left - tokens - LEAST_QUESTION
        if room < 0:
            why = f"the system prompt's {tokens:,} tokens leave no room for a question in a prompt of {self.left:,}"
            raise InvalidSetting("budget", f"{why}; {self.policy.raised_by} raises it")
        if self.inputs.covered_instructions:
            text = "\n\n".join([*filter(None, [text]), *self._covered_instructions(manifest, room // 2)])
            both = self.counter.count_recurring(text)
            room, tokens = room - both + tokens, both
        if instructions:
            text = f"{text}\n\n{instructions}" if text else instructions
            both = self.counter.count_recurring(text)
            if both - tokens > room:
                raise InstructionsTooLong("instructions", both - tokens, room, self.policy.raised_by)
            tokens = both
        self.left -= tokens
        if text:
            # Instructions are not stored: there is nothing to compare them with.
            own = not instructions and not self.inputs.covered_instructions
            manifest.add(Kind.SYSTEM, *_ALWAYS, tokens, text=text if own else "")
        return text

    def _covered_instructions(self, manifest: ManifestBuilder, room: int) -> list[str]:
        """The newest system messages that a summary covers, whole, as many as there is room for."""
        kept: list[str] = []
        for text in reversed(self.inputs.covered_instructions):
            room -= self.counter.count_recurring(text)
            if room < 0:
                manifest.cut = True
                break
            kept.append(text)
        return kept[::-1]

    def _reserve_input_system(self) -> None:
        """Keep room for the system messages that the turn itself brings."""
        if not self.inputs.input_start:
            return
        messages = self.inputs.history[self._input_place() :]
        own = [one for one in messages if one.role is Role.SYSTEM and one.seq >= self.inputs.input_start]
        tokens = sum([self.counter.count_message(one) + self.layout.around(one) for one in own])
        room = self.left - LEAST_QUESTION
        if tokens > room:
            raise InstructionsTooLong("messages", tokens, room, self.policy.raised_by)
        self.input_system_tokens = tokens

    def _add_question(self, manifest: ManifestBuilder) -> tuple[str, tuple[JsonObject, ...]]:
        """The question, and its parts where it shows anything."""
        question, parts = self.inputs.question, self.inputs.question_parts
        shown = tuple([part for part in parts if part["type"] in MEDIA_PARTS or LEFT_OUT in part])
        around = sum(map(self.counter.count_part, shown))
        escaped = self.layout.escape_user_lines(question)
        stored_tokens = self.inputs.question_tokens if escaped == question else 0
        uncut_tokens = self.counter.count_text(escaped, stored_tokens)
        text = truncate_text(escaped, self.left - self.input_system_tokens - around, self.counter.count, uncut_tokens)
        tokens = around + (uncut_tokens if text is escaped else self.counter.count(text))
        uncut_tokens += around
        what = _ALWAYS if tokens == uncut_tokens else _CUT
        if what is _ALWAYS and any(LEFT_OUT in part for part in shown):
            what = _NO_MEDIA
        manifest.add(Kind.QUESTION, *what, tokens, uncut_tokens, text=question)
        self.left -= tokens
        if not shown or text == question:
            return text, parts
        # Its texts are not as they came, so they stand before all that it shows.
        return text, ((text_part(text), *shown) if text else shown)

    def _split_history(self, prompt_limit: int) -> tuple[Sequence[Message], Sequence[Message], WindowFiller]:
        """What the summary covers, what is not relevant, and what may be shown."""
        inputs = self.inputs
        history, relevant = inputs.history, inputs.history_relevant
        begins = max(inputs.summarized_through + 1 if inputs.summary else 1, inputs.window_start)
        first = start = bisect_left(history, begins, key=_seq)
        if not relevant:
            start = max(first, self._input_place())
        cap = self.policy.message_tokens or max(16, prompt_limit // 4)
        reader = TurnReader(self.layout, self.counter, cap, input_start=inputs.input_start)
        slides = relevant and start < len(history) and history[start].seq > begins
        return history[:first], history[first:start], WindowFiller(history[start:], self.context, reader, slides)

    def _input_place(self) -> int:
        """Where the turn's own input begins in the history, with the calls whose outputs it brings."""
        history, begins = self.inputs.history, self.inputs.input_start
        if not begins:
            return len(history)
        return min(bisect_left(history, begins, key=_seq), next(spans(history), (0, 0))[0])

    def _add_text(self, manifest: ManifestBuilder, kind: Kind, text: str, uncut_tokens: int) -> str:
        if not text:
            return ""
        if kind is Kind.SUMMARY and not self.inputs.history_relevant:
            manifest.add(kind, Disposition.DROPPED, Reason.IRRELEVANT, 0, uncut_tokens, text=text)
            return ""
        if uncut_tokens > self.left and self.left < LEAST_CUT:
            manifest.add(kind, Disposition.DROPPED, Reason.OVER_BUDGET, 0, uncut_tokens, text=text)
            return ""
        truncated = truncate_text(text, self.left, self.counter.count, uncut_tokens)
        tokens = uncut_tokens if truncated is text else self.counter.count(truncated)
        manifest.add(kind, *(_KEPT if truncated is text else _CUT), tokens, uncut_tokens, text=text)
        self.left -= tokens
        return truncated

    def _add_snippets(self, manifest: ManifestBuilder, kind: Kind, pieces: Sequence[Piece] | None) -> tuple[Piece, ...]:
        snippets: list[Piece] = []
        for piece in pieces or ():
            text = self.layout.escape_lines(piece.text)
            around = self.layout.snippet_overhead(piece, kind is Kind.EVIDENCE)
            uncut_tokens = self.counter.count_text(text, piece.tokens if text == piece.text else 0)
            limit = self.left - around
            if uncut_tokens > limit and (snippets or limit < LEAST_CUT):
                manifest.add(kind, Disposition.DROPPED, Reason.OVER_BUDGET, 0, uncut_tokens + around, piece)
                continue
            truncated = truncate_text(text, limit, self.counter.count, uncut_tokens)
            tokens = around + (uncut_tokens if truncated is text else self.counter.count(truncated))
            manifest.add(kind, *(_KEPT if truncated is text else _CUT), tokens, uncut_tokens + around, piece)
            self.left -= tokens
            snippets.append(replace(piece, text=truncated))
        return tuple(snippets)

    def _record_history(
        self,
        manifest: ManifestBuilder,
        before_start: Sequence[Message],
        irrelevant: Sequence[Message],
        window: Window,
        has_summary: bool,
    ) -> None:
        if self.inputs.summary:
            first, last = self.inputs.summarized_from, self.inputs.summarized_through
            # Without a count the sequence numbers are an upper bound.
            manifest.covering(first, last, self.inputs.summarized_messages or max(1, last - first + 1))
        if has_summary:
            what = Disposition.SUMMARISED, Reason.COVERED
        elif self.inputs.history_relevant:
            what = Disposition.DROPPED, Reason.OVER_BUDGET if self.inputs.summary else Reason.PAST
        else:
            what = Disposition.DROPPED, Reason.IRRELEVANT
        alone = self.inputs.persona if self.inputs.isolated else None
        if alone is None:
            manifest.stretch(before_start, *what)
        else:
            for own, run in groupby(before_start, lambda message: message.persona in (None, alone)):
                manifest.stretch([*run], *(what if own else (Disposition.DROPPED, Reason.OTHER_PERSONA)))
        manifest.stretch(irrelevant, Disposition.DROPPED, Reason.IRRELEVANT)
        manifest.window(self.inputs.history[len(before_start) + len(irrelevant) :], window)


def parts_of_question(messages: Sequence[Message]) -> tuple[JsonObject, ...]:
    """The parts of a question that shows pictures, sounds or files; none of one that is text alone."""
    if not shows_media(messages):
        return ()
    parts: list[JsonObject] = []
    for message in messages:
        if parts:
            parts.append(text_part("\n"))
        readable = map(readable_part, message.parts)
        parts += [part for part in readable if part["type"] == "text" or part["type"] in MEDIA_PARTS]
    return tuple(parts)


def last_input(talk: Sequence[Message]) -> tuple[Message, ...]:
    """The messages of the last turn that wait for an answer: a user's, and outputs of tools."""
    first = len(talk)
    while first and (_is_said_with(talk[-1], talk[first - 1]) or _is_brought_with(talk[-1], talk[first - 1])):
        first -= 1
    return tuple(talk[first:])


def last_words(talk: Sequence[Message]) -> tuple[Message, ...]:
    """The last speaker's user messages of the last turn, which wait for an answer."""
    first = len(talk)
    while first and _is_said_with(talk[-1], talk[first - 1]):
        first -= 1
    return tuple(talk[first:])


def _is_brought_with(last: Message, one: Message) -> bool:
    return INPUT in one.metadata and one.turn == last.turn


def _is_said_with(last: Message, one: Message) -> bool:
    return one.role is Role.USER and one.turn == last.turn and one.speaker == last.speaker
