"""Privacy policies: how private data is treated in each sink of text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final, Protocol, TypeGuard

from tenuto.errors import InvalidSetting
from tenuto.model.memory import MEMORIES, MEMORY_CHANGES, MEMORY_INDEX, STALE_STRETCHES, VECTORS
from tenuto.model.scope import Scope
from tenuto.model.task import is_task_namespace
from tenuto.model.values import Json, Value


class Sink(StrEnum):
    """A destination of text.

    `message` is the log; `past` is the part of it that a summary covers, which may be redacted later: kept, it stays as
    `message` stored it. `memory` is data of a user or a chat beside the log, `board` what the agents of their tasks
    work with; `model` is the prompt of a language model, and `answer` its reply to the user.
    """

    MESSAGE = "message"
    PAST = "past"
    SUMMARY = "summary"
    MEMORY = "memory"
    BOARD = "board"
    TITLE = "title"
    TRACE = "trace"
    LOG = "log"
    EXPORT = "export"
    MODEL = "model"
    ANSWER = "answer"


class Mode(StrEnum):
    """How a private value is treated on its way into a sink.

    `pseudonym` replaces it by a numbered placeholder, `[EMAIL_1]`, and stores the value in the session's vault. `block`
    refuses a message or a model request that contains one; from other sinks the whole text is withheld.
    """

    KEEP = "keep"
    REDACT = "redact"
    PSEUDONYM = "pseudonym"
    BLOCK = "block"


class AttachmentMode(StrEnum):
    """How a picture, a sound or a file is treated on its way into a sink.

    `drop` leaves a mark or a placeholder in its place; `block` refuses the message or the turn that shows it.
    """

    KEEP = "keep"
    DROP = "drop"
    BLOCK = "block"


# Sinks whose policy tells attachments apart: in a summary or a memory they are named, elsewhere they are shown.
ATTACHMENT_SINKS: Final = (Sink.MESSAGE, Sink.MODEL, Sink.MEMORY, Sink.EXPORT)
_MAY_BLOCK: Final = frozenset({Sink.MESSAGE, Sink.MODEL})
# The type that a refusal names.
ATTACHMENT_TYPE: Final = "ATTACHMENT"

# The key of a message's metadata that counts its placeholders by name.
REDACTED: Final = "redacted"
# The key of a message's metadata that tells when its stored text was redacted; absent if that was before storing.
REDACTED_AT: Final = "redacted_at"

# A pseudonym needs a session whose vault holds the value; these texts have none, or outlive it.
_NO_PSEUDONYM: Final = frozenset({Sink.LOG, Sink.MEMORY, Sink.BOARD, Sink.EXPORT, Sink.ANSWER})


# The namespace of a shop: its goods, and each buyer's orders.
SHOP: Final = "goods"
# The namespace of the sessions that are found by the history of their requests.
HISTORIES: Final = "sessions-by-history"
# Namespaces of users that are not redacted: business data (an order needs its number), vectors and ids of memories, the
# index of memories, which is made of redacted ones, and ids of sessions.
_BOOKS: Final = frozenset({SHOP, VECTORS, MEMORY_CHANGES, MEMORY_INDEX, STALE_STRETCHES, HISTORIES})

_NO_MARKS: Final[Mapping[tuple[str, str], str]] = MappingProxyType({})


class CustomPattern(Value, frozen=True, kw_only=True):
    """A kind of private data of this installation or tenant: staff numbers, case files.

    `name` stands in its placeholder (capitals, digits, underscores).
    """

    name: str
    pattern: str
    ignore_case: bool = False


class PrivacyPolicy(Value, frozen=True, kw_only=True):
    """The mode of each sink, and which data is private.

    `also` adds types that are detected only on request (ADDRESS, ORDER_ID, PERSON), `never` removes types. `allow` has
    values that are not private: an address, a number, or `@example.com` and `*.example.com` for a whole domain. Values
    of the types in `unvaulted` are redacted where others get a pseudonym: they are never restored.

    Pictures, sounds and files are not searched. `attachments_message` says whether they are stored, `attachments_model`
    whether a model gets them, `attachments_memory` whether summaries and memories name them, and `attachments_export`
    whether exports hold them.
    """

    message: Mode = Mode.KEEP
    past: Mode = Mode.KEEP
    summary: Mode = Mode.REDACT
    memory: Mode = Mode.REDACT
    board: Mode = Mode.KEEP
    title: Mode = Mode.REDACT
    trace: Mode = Mode.REDACT
    log: Mode = Mode.REDACT
    export: Mode = Mode.REDACT
    model: Mode = Mode.KEEP
    answer: Mode = Mode.KEEP
    also: tuple[str, ...] = ()
    never: tuple[str, ...] = ()
    allow: tuple[str, ...] = ()
    patterns: tuple[CustomPattern, ...] = ()
    unvaulted: tuple[str, ...] = ("SECRET", "API_KEY")
    attachments_message: AttachmentMode = AttachmentMode.KEEP
    attachments_model: AttachmentMode = AttachmentMode.KEEP
    attachments_memory: AttachmentMode = AttachmentMode.KEEP
    attachments_export: AttachmentMode = AttachmentMode.KEEP

    def __post_init__(self) -> None:
        for sink in ATTACHMENT_SINKS:
            mode = self.attachment_mode(sink)
            if not isinstance(mode, AttachmentMode):
                raise InvalidSetting(f"privacy_attachments_{sink}", f"wants one of {', '.join(AttachmentMode)}")
            if mode is AttachmentMode.BLOCK and sink not in _MAY_BLOCK:
                raise InvalidSetting(f"privacy_attachments_{sink}", "cannot be block: no message comes that way")
        for sink in Sink:
            if not isinstance(self.mode(sink), Mode):
                raise InvalidSetting(f"privacy_{sink}", f"wants a mode: {', '.join(Mode)}")
        for what in ("also", "never", "allow", "unvaulted"):
            listed = getattr(self, what)
            if not isinstance(listed, list | tuple) or not all(isinstance(one, str) for one in listed):
                raise InvalidSetting(what, "is a list of texts")
        for sink in _NO_PSEUDONYM:
            if self.mode(sink) is Mode.PSEUDONYM:
                raise InvalidSetting(f"privacy_{sink}", "cannot be pseudonym: no session's vault goes with that text")
        if self.answer is Mode.BLOCK:
            raise InvalidSetting("privacy_answer", "cannot be block: words that were streamed cannot be taken back")

    def mode(self, sink: Sink) -> Mode:
        """The mode of a sink."""
        mode: Mode = getattr(self, sink.value)
        return mode

    def attachment_mode(self, sink: Sink) -> AttachmentMode:
        """How attachments are treated in a sink, one of `ATTACHMENT_SINKS`."""
        mode: AttachmentMode = getattr(self, f"attachments_{sink.value}")
        return mode

    @property
    def vaulted(self) -> bool:
        """Whether some sink uses the vault, which needs a key."""
        return any(self.mode(sink) is Mode.PSEUDONYM for sink in Sink)


NOT_SEARCHED: Final = "WITHHELD"
"""The type of a match that covers text which was not searched, since the text before it took all the work allowed."""


class PiiMatch(Value, frozen=True, kw_only=True):
    """A match of private data: `start` and `end` count code points of the text.

    `type`, `rule` and `name` are fixed words, or the name of a custom pattern. They reveal nothing about the value, so
    they may appear in logs and metrics; `name` appears in placeholders.
    """

    start: int
    end: int
    type: str
    rule: str
    name: str

    @property
    def placeholder(self) -> str:
        """Its replacement where it is redacted: `[REDACTED_EMAIL]`."""
        return f"[{self.name}]" if self.type == NOT_SEARCHED else f"[REDACTED_{self.name}]"


def state_sink(scope: Scope, namespace: str) -> Sink | None:
    """The sink of the values of a namespace; `None` for the tenant's own data, which is not redacted."""
    if namespace == MEMORIES:
        return Sink.MEMORY
    if not scope.owner or namespace in _BOOKS:
        return None
    return Sink.BOARD if is_task_namespace(namespace) else Sink.MEMORY


class Replaceable(Protocol):
    """A private value in a text: a match of a policy, or a span of the built-in rules."""

    @property
    def start(self) -> int: ...
    @property
    def end(self) -> int: ...
    @property
    def name(self) -> str: ...
    @property
    def placeholder(self) -> str: ...


def replace_matches(
    text: str, matches: Iterable[Replaceable], at: int = 0, placeholders: Mapping[tuple[str, str], str] = _NO_MARKS
) -> str:
    """`text` from `at` on, with the matches replaced, which are in order and do not overlap.

    `placeholders` has the pseudonyms by name and value; other values are redacted.
    """
    parts: list[str] = []
    for match in matches:
        value = text[match.start : match.end]
        parts += (
            text[at : match.start],
            placeholders.get((match.name, value), match.placeholder) if placeholders else match.placeholder,
        )
        at = match.end
    parts.append(text[at:])
    return "".join(parts)


# Encrypted text is recognised without a key by its form: `tnt1.<data key>.<base64url>`.
SEAL_MARK: Final = "tnt1."
# State that is never encrypted as a whole: tenants' wrapped data keys, the list of tenants that have some, whether a
# store holds encrypted records and how far it was encrypted again, and vaults, whose values are encrypted one by one.
KEYS_NAMESPACE: Final = "privacy.keys"
KEYS_ENTRY: Final = "data"
TENANTS_NAMESPACE: Final = "privacy.tenants"
ENCRYPTION_NAMESPACE: Final = "encryption"
RESEALING_ENTRY: Final = "resealing"
VAULT: Final = "privacy.vault"
DATA_KEY_LENGTH: Final = 16
_DOT: Final = len(SEAL_MARK) + DATA_KEY_LENGTH
# Twelve bytes of nonce and sixteen of tag, in base64, when nothing is inside.
_SHORTEST: Final = _DOT + 1 + 38


def is_sealed(value: Json) -> TypeGuard[str]:
    """Whether a stored value has the form of sealed text."""
    return type(value) is str and value.startswith(SEAL_MARK) and len(value) >= _SHORTEST and value[_DOT] == "."


def data_key_id(sealed: str) -> str:
    """Which data key a sealed text names."""
    return sealed[len(SEAL_MARK) : _DOT]


def body_of(sealed: str) -> str:
    """The ciphertext behind the key id."""
    return sealed[_DOT + 1 :]
