"""What the platform refuses, as a test sets it: the codes and headers of the real one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from starlette.responses import JSONResponse

from tests.lark_platform.chats import Message

INVALID_TOKEN = 99991663
RATE_LIMITED = 99991400
INVALID_REQUEST = 230001
BOT_OUTSIDE = 230002
RECALLED = 230011
NOT_THE_SENDER = 230012
TOO_LONG = 230025
NO_SUCH_FILE = 234003
WRONG_SECRET = 10014
_SAID = {
    INVALID_TOKEN: "Invalid access token for authorization. Please make a test attempt.",
    RATE_LIMITED: "request trigger frequency limit",
    INVALID_REQUEST: "Your request contains an invalid request parameter.",
    BOT_OUTSIDE: "The bot can not be outside the group.",
    RECALLED: "The message was withdrawn.",
    NOT_THE_SENDER: "Bot is NOT the sender of the message.",
    TOO_LONG: "The length of the message content reaches its limit.",
    NO_SUCH_FILE: "File not in msg.",
    WRONG_SECRET: "app secret invalid",
}


@dataclass(kw_only=True)
class Fault:
    """A refusal of the next requests of some kinds: `times` of them, or all if `None`."""

    kinds: frozenset[str]
    code: int = 0
    status: int = 400
    times: int | None = None
    about: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)

    def strikes(self, kind: str, chat: str | None, message: Message | None) -> bool:
        """Whether this request is refused; counts it."""
        ids = {chat} if message is None else {chat, message.id, message.chat.id}
        if kind not in self.kinds or self.times == 0 or (self.about is not None and self.about not in ids):
            return False
        self.times = None if self.times is None else self.times - 1
        return True

    def answer(self) -> JSONResponse:
        """The refusal."""
        return refusal(self.code, status=self.status, headers=self.headers)


def refusal(code: int, *, status: int = 400, headers: Mapping[str, str] | None = None) -> JSONResponse:
    """An answer with a code of the platform."""
    return JSONResponse({"code": code, "msg": _SAID.get(code, "refused")}, status, headers)
