"""`Prompt`, its `PromptInputs`, and its `Manifest`: what became of each input."""

from __future__ import annotations

from binascii import b2a_base64
from collections.abc import Mapping, Sequence
from enum import StrEnum
from hashlib import blake2b
from types import MappingProxyType
from typing import Final

from msgspec.structs import replace

from tenuto.errors import InvalidSetting
from tenuto.model.attachment import NO_MEDIA, MediaInputs
from tenuto.model.message import Message, Role
from tenuto.model.values import JsonObject, Value

_DIGEST_BYTES: Final = 12
UNKNOWN_WINDOW: Final = 8192
"""The budget of a prompt for a model whose context window is not known."""
MAX_PROMPT_TOKENS: Final = 32_768
"""The most of a context window that a prompt takes, where no setting says another number."""


class Language(StrEnum):
    """The language of the prompt's own text; the conversation is not translated."""

    ENGLISH = "en"
    CHINESE = "zh"


class LayoutName(StrEnum):
    """How a prompt is laid out.

    `chat` gives each message its role and shows tools. The others write the history as lines of one text: `goods`
    under `=== 对话历史 ===` with a closing instruction, `question` under `历史对话:`, `marked` as a block that says it
    is context and no evidence.
    """

    CHAT = "chat"
    GOODS = "goods"
    QUESTION = "question"
    MARKED = "marked"


class RecallPosition(StrEnum):
    """Where memories and evidence stand.

    They differ from turn to turn. Next to the question they leave the prompt's beginning as it was, which is what
    provider caches need; before the window they come earlier in the reading.
    """

    BEFORE_QUESTION = "before_question"
    BEFORE_WINDOW = "before_window"


class PromptPolicy(Value, frozen=True, kw_only=True):
    """How a prompt is put together within its budget.

    `budget` bounds the whole prompt and `reply_tokens` tokens kept free for the answer; without one it follows the
    model's context window (`fit_model`). An answer has at most `max_reply_tokens`; `None` leaves that to the model. A
    single message of the window takes at most `message_tokens` (default: a quarter of the prompt), except for system
    messages, which are never cut. `recall_share` of the prompt is kept free of older turns for memories and evidence.
    `trim_share` is how much of the window is let go at once when it is full, so that its beginning then stays where it
    is for several turns. `raised_by` is the setting that makes a larger budget.
    """

    budget: int | None = None
    reply_tokens: int = 1024
    max_reply_tokens: int | None = None
    message_tokens: int | None = None
    recall_share: float = 0.25
    trim_share: float = 0.25
    layout: LayoutName = LayoutName.CHAT
    recall_position: RecallPosition = RecallPosition.BEFORE_QUESTION
    raised_by: str = "the assistant's prompt.budget"

    def __post_init__(self) -> None:
        if self.reply_tokens < 0:
            raise InvalidSetting("reply_tokens", "must not be negative")
        if self.budget is not None and self.budget <= self.reply_tokens:
            why = f"{self.budget} tokens leave no room for the prompt beside the reply's {self.reply_tokens}"
            raise InvalidSetting("budget", why)
        if self.max_reply_tokens is not None and self.max_reply_tokens < 1:
            raise InvalidSetting("max_reply_tokens", "must be at least 1")
        if self.message_tokens is not None and self.message_tokens < 16:
            raise InvalidSetting("message_tokens", "must be at least 16")
        for what in ("recall_share", "trim_share"):
            if not 0 <= getattr(self, what) < 1:
                raise InvalidSetting(what, "must lie between 0 and 1")

    @property
    def budget_tokens(self) -> int:
        """The budget; where neither the policy nor a model says one, that of an unknown model."""
        return UNKNOWN_WINDOW if self.budget is None else self.budget

    def fit_model(self, context_window: int | None, most: int) -> PromptPolicy:
        """The policy with a budget: its own, or the model's context window up to `most` tokens.

        Raises:
            InvalidSetting: the reply's share leaves no room for a prompt.
        """
        if self.budget is not None:
            return self
        window = UNKNOWN_WINDOW if context_window is None else context_window
        setting = "max_prompt_tokens" if window >= most else "model_context_windows"
        return replace(self, budget=min(window, most), raised_by=setting)


class Piece(Value, frozen=True, kw_only=True):
    """A memory, a piece of evidence or a message of a group; `tokens` is its stored count, 0 if it has none.

    `score` is that of the search that found it.
    """

    id: str
    text: str
    tokens: int = 0
    score: float | None = None


class PromptInputs(Value, frozen=True, kw_only=True):
    """Everything that may enter one prompt.

    `history` is the talk before the question, oldest first; the `summary` covers it up to `summarized_through`,
    beginning with `summarized_from` and `summarized_messages` in all (0: unknown), most of which need not be in the
    history; and `window_start` is the first message that belongs to the context at all. `memories` or `evidence` set to
    `None` say that this assistant has none; an empty tuple, that this time nothing was found. `chat_context` is what
    other people wrote in the same group, newest first. An `isolated` persona sees only its own turns. `display_names`
    gives personas the names they are shown under; `speaker_names` gives users theirs, and is empty where no other may
    speak. With `history_relevant` false the history has nothing to do with the question and is left out.
    `question_tokens` is its count, 0 if it is not counted yet.

    A turn may have further input before its question, or instead of one: it is the end of the history, from
    `input_start` on (0: there is none), and stays. `instructions` are the caller's, for this turn,
    `covered_instructions` system messages that the summary covers.

    A question that shows pictures, sounds or files has its parts in `question_parts` as well. Of all that is shown, the
    model gets what is among its `media`.
    """

    question: str
    question_parts: tuple[JsonObject, ...] = ()
    question_tokens: int = 0
    input_start: int = 0
    system: str = ""
    instructions: str = ""
    covered_instructions: tuple[str, ...] = ()
    preferences: str = ""
    summary: str = ""
    summarized_through: int = 0
    summarized_from: int = 1
    summarized_messages: int = 0
    window_start: int = 1
    history: tuple[Message, ...] = ()
    memories: tuple[Piece, ...] | None = None
    evidence: tuple[Piece, ...] | None = None
    chat_context: tuple[Piece, ...] = ()
    persona: str | None = None
    isolated: bool = False
    speaker: str | None = None
    display_names: Mapping[str, str] = MappingProxyType({})
    speaker_names: Mapping[str, str] = MappingProxyType({})
    history_relevant: bool = True
    language: Language = Language.ENGLISH
    media: MediaInputs = NO_MEDIA


class Kind(StrEnum):
    """What a part of a prompt is.

    `FRAME` is the layout's own: headings, roles, the start of the reply. `TOOLS` is the description of the tools.
    """

    SYSTEM = "system"
    PREFERENCES = "preferences"
    SUMMARY = "summary"
    MEMORY = "memory"
    EVIDENCE = "evidence"
    CHAT_CONTEXT = "chat_context"
    MESSAGE = "message"
    QUESTION = "question"
    TOOLS = "tools"
    FRAME = "frame"


class Disposition(StrEnum):
    """The outcome for a candidate."""

    KEPT = "kept"
    SUMMARISED = "summarised"
    CUT = "cut"
    DROPPED = "dropped"


class Reason(StrEnum):
    """Why a part is in the prompt, or is not."""

    ALWAYS = "always"  # system prompt, question and frame are in every prompt
    FITS = "fits"
    COVERED = "covered"  # the summary tells it
    PAST = "past"  # before the session's window start: kept, but no context any more
    MESSAGE_CAP = "message_cap"
    OVER_BUDGET = "over_budget"
    WINDOW_MESSAGES = "window_messages"
    WINDOW_TURNS = "window_turns"
    WINDOW_CHARACTERS = "window_characters"
    TRIMMED = "trimmed"  # would fit, but goes with its neighbours so that the beginning stays stable
    PARTIAL = "partial"  # the beginning of its turn was not loaded
    IRRELEVANT = "irrelevant"
    OTHER_PERSONA = "other_persona"
    NO_MEDIA = "no_media"  # a placeholder stands in the place of a picture, a sound or a file
    NOT_SHOWN = "not_shown"  # foreign parts, or tools in a layout without them
    ORPHAN = "orphan"  # a tool call without its result, or the other way round
    EMPTY = "empty"


class ManifestEntry(Value, frozen=True, kw_only=True):
    """One candidate, or a run of neighbouring messages that met the same end.

    `tokens` is what it takes in the prompt, with its label; `uncut_tokens` what it would take uncut. `first` and `last`
    are the sequence numbers of messages, `count` how many they are: for a summary, those it speaks for. `score` is that
    of the search that found a memory. `digest` is that of its whole text under the trace's key; a run of messages, the
    frame and what is never stored have none.
    """

    kind: Kind
    disposition: Disposition
    reason: Reason
    tokens: int = 0
    uncut_tokens: int = 0
    id: str | None = None
    first: int | None = None
    last: int | None = None
    count: int = 1
    score: float | None = None
    digest: str = ""


def digest_text(text: str, key: bytes) -> str:
    """A keyed digest of a text, by which it is recognised later; empty without a key."""
    return digest_texts((text,), key)[0]


def digest_texts(texts: Sequence[str], key: bytes) -> list[str]:
    """The digest of each text, as `digest_text` makes one."""
    if not key:
        return [""] * len(texts)
    # In its keyed mode it is a message authentication code, and three times as fast as HMAC on short texts.
    return [
        b2a_base64(blake2b(text.encode(), key=key, digest_size=_DIGEST_BYTES).digest(), newline=False).decode()
        for text in texts
    ]


class PartState(StrEnum):
    """What is still known of a part of an earlier prompt."""

    STORED = "stored"  # as the model saw it
    REDACTED = "redacted"  # stored, but where the model saw a private value, a placeholder stands
    CHANGED = "changed"  # stored, but not as the model saw it
    UNCHECKED = "unchecked"  # stored, and this server has no key to tell whether the model saw it so
    GONE = "gone"  # no longer stored
    UNSTORED = "unstored"  # never stored: the layout, a caller's instructions, messages of a group
    WITHHELD = "withheld"  # the assistant's own prompt and tools, which users are not shown


class PartText(Value, frozen=True, kw_only=True):
    """The text of one part of an earlier prompt, from what is stored today; empty where there is none to show.

    That of a message says who spoke: its role, and the user or the persona.
    """

    state: PartState
    text: str = ""
    role: Role | None = None
    speaker: str | None = None


class Manifest(Value, frozen=True, kw_only=True):
    """The account of one prompt, in the prompt's order: every candidate once, and the sums.

    `total` is the sum of all entries' tokens and never exceeds `prompt_limit`, the budget less the reply's share,
    divided by the `margin` that stands for a tokenizer we do not have. Of it, `cacheable_tokens` are the beginning that
    the next turn's prompt repeats, unless it is trimmed or compressed; 0 in older manifests.
    """

    entries: tuple[ManifestEntry, ...]
    total: int
    prompt_limit: int
    budget: int
    reply_tokens: int
    encoding: str
    exact: bool
    margin: float
    layout: LayoutName
    cacheable_tokens: int = 0


class PromptMessage(Value, frozen=True, kw_only=True):
    """One message of a prompt: text, tool call and tool result parts as in a `Message`; texts are joined as they are.

    `message_id` is the id of the stored message it shows.
    """

    role: Role
    parts: tuple[JsonObject, ...]
    message_id: str | None = None

    @property
    def text(self) -> str:
        """The words alone."""
        return "".join(part["text"] for part in self.parts if part["type"] == "text")


class Prompt(Value, frozen=True, kw_only=True):
    """What the model is shown. The first `cacheable_messages` messages open the next turn's prompt as well, unless it
    is trimmed, compressed or given another persona: a provider's cache may keep them. Of a text that is `cut` it sees a
    part; the manifest says of which.

    `media` are the pictures, sounds and files in it, `media_left_out` how many placeholders stand for others.
    """

    messages: tuple[PromptMessage, ...]
    manifest: Manifest
    cacheable_messages: int = 0
    media: int = 0
    media_left_out: int = 0
    cut: bool = False

    @property
    def text(self) -> str:
        """All words in a row, as the one-text layouts define them."""
        return "".join(message.text for message in self.messages)
