"""What an operator sets up: settings, packages, API keys, assistants and chat platforms."""

from __future__ import annotations

from datetime import timedelta
from typing import ClassVar

from tenuto.errors.families import Invalid, LimitReached, NotFound, TenutoError, Unavailable
from tenuto.extras import install_line


class InvalidSetting(Invalid):
    """A setting is unknown, out of range or contradicts another one."""

    code: ClassVar[str] = "invalid_setting"

    def __init__(self, setting: str, why: str) -> None:
        super().__init__(f"{setting}: {why}")
        self.setting = setting


class ForeignStore(InvalidSetting):
    """The store's address leads to data of another program, or to a file that is no database."""


class NewerStore(InvalidSetting):
    """The store was written by a newer release."""


class PackageMissing(InvalidSetting):
    """A setting needs a package that is not installed; `install` is the command that brings it."""

    def __init__(self, setting: str, what: str, *, extra: str = "", install: str = "") -> None:
        self.install = install or install_line(extra)
        super().__init__(setting, f"{what} needs a package that is not installed: {self.install}")


class ExtraMissing(Unavailable):
    """A package that this needs is not installed; `install` is the command that brings it."""

    code: ClassVar[str] = "extra_missing"
    retry_after: ClassVar[None] = None

    def __init__(self, what: str, extra: str = "", *, install: str = "") -> None:
        self.install = install or install_line(extra)
        super().__init__(what, f"needs a package that is not installed: {self.install}")


class ApiKeyNotFound(NotFound):
    """No API key has this id."""

    code: ClassVar[str] = "api_key_not_found"
    message: ClassVar[str] = "there is no API key with this id"


class AssistantNotFound(NotFound):
    """No assistant has this name, or no character of it this one."""

    code: ClassVar[str] = "assistant_not_found"

    def __init__(self, what: str, known: str) -> None:
        super().__init__(f"there is no such {what}; available: {known}")


class AssistantFailed(TenutoError):
    """Code of an assistant raised what is no `TenutoError`, which is the cause; the user message stays stored."""

    code: ClassVar[str] = "assistant_failed"

    def __init__(self, name: str) -> None:
        super().__init__(f"the assistant {name} failed; its operator finds the cause in the trace")


class AssistantMissing(Unavailable):
    """The file of an assistant cannot be loaded; `cause` names file, line and what to do, for operators alone."""

    code: ClassVar[str] = "assistant_missing"
    retry_after: ClassVar[None] = None
    cause: str = ""

    def __init__(self, name: str, cause: str) -> None:
        super().__init__(f"assistant {name}", "cannot be loaded; its operator finds the cause in Health")
        self.cause = cause


class DeliveryRefused(Invalid):
    """A delivery of a chat platform that is not genuine or cannot be read; `forged` if its origin is not proved."""

    code: ClassVar[str] = "delivery_refused"

    def __init__(self, why: str, *, forged: bool = False) -> None:
        super().__init__(why)
        self.forged = forged


class ReplyRefused(Invalid):
    """A chat platform refuses a reply for good, as to a recalled message; `reason` is the platform's code."""

    code: ClassVar[str] = "reply_refused"

    def __init__(self, reason: str) -> None:
        super().__init__(f"the platform refuses the reply: {reason}")
        self.reason = reason


class QueueFull(LimitReached):
    """As many messages of a chat wait for their turn as may; the platform delivers this one again later."""

    code: ClassVar[str] = "queue_full"

    def __init__(self, limit: int) -> None:
        super().__init__(f"{limit} messages of this chat are already waiting")


class ChannelUnavailable(Unavailable):
    """A chat platform does not answer, or asks to slow down; `retry_after` is when it wants the next request."""

    code: ClassVar[str] = "channel_unavailable"

    def __init__(self, channel: str, why: str = "does not answer", retry_after: timedelta | None = None) -> None:
        super().__init__(f"platform of {channel}", why)
        self.retry_after = retry_after
