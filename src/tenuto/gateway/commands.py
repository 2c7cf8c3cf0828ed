"""The commands of a chat: a message that is one is not answered by a model (D20)."""

from __future__ import annotations

import logging
import unicodedata
from collections.abc import Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from tenuto.access import People, PersonNews
from tenuto.context import language_of
from tenuto.errors import IdentityNotFound, LinkCodeRefused, PersonFull, SessionNotFound, TenutoError, TooManyLinkCodes
from tenuto.gateway.addresses import Address
from tenuto.gateway.wording import WORDING, ChatWording
from tenuto.model import Changes, Message, Page, Role, Scope
from tenuto.model.channel import ChannelPolicy, GroupScope, IncomingMessage, MessageKind, ResetBy
from tenuto.model.prompt import Language
from tenuto.model.session import CONTEXT_SINCE, MAX_TITLE_CHARACTERS
from tenuto.sessions import Sessions

# The messages by which the language of a chat is recognised.
_READ: Final = 10
_log = logging.getLogger(__name__)


class ChatCommand(StrEnum):
    """What a message may command, at its beginning."""

    RESET = "/reset"
    NEW = "/new"
    HELP = "/help"
    TITLE = "/title"
    LINK = "/link"
    UNLINK = "/unlink"


def parse_command(text: str) -> ChatCommand | None:
    """The command that a message is; only a title and a code stand behind one."""
    tokens = text.split(maxsplit=1)
    # As phones and Chinese keyboards write it: capitals, a wide slash, the bot's name behind it.
    name = unicodedata.normalize("NFKC", tokens[0]).casefold().partition("@")[0] if tokens else ""
    if name not in tuple(ChatCommand):
        return None
    command = ChatCommand(name)
    return command if len(tokens) == 1 or command in (ChatCommand.TITLE, ChatCommand.LINK) else None


class Commands:
    """Runs commands on the sessions of chats, and on the people who write there."""

    def __init__(self, *, sessions: Sessions, people: People, policy: ChannelPolicy) -> None:
        self._sessions = sessions
        self._people = people
        self._policy = policy

    def may_run(self, command: ChatCommand, message: IncomingMessage) -> bool:
        """Whether the sender may run this command there (D26)."""
        own = not message.group or self._policy.group_scope is GroupScope.MEMBER
        if own or command not in (ChatCommand.RESET, ChatCommand.NEW) or self._policy.reset_by is ResetBy.ANYONE:
            return True
        return message.sender in self._policy.resetters

    def clears_context(self, message: IncomingMessage) -> bool:
        """Whether a message makes the chat begin without what was said before it."""
        command = parse_command(message.text) if message.kind is MessageKind.TEXT else None
        return command in (ChatCommand.RESET, ChatCommand.NEW) and self.may_run(command, message)

    async def context_since(self, address: Address) -> datetime | None:
        """When the session was last reset, through whichever door; a patch may have put anything there."""
        try:
            since = (await self._sessions.get(address.scope, address.session_id)).metadata.get(CONTEXT_SINCE)
            at = datetime.fromisoformat(since) if isinstance(since, str) else None
        except (SessionNotFound, ValueError):
            return None
        return at if at is not None and at.tzinfo is not None else None

    async def run(self, command: ChatCommand, address: Address, message: IncomingMessage) -> str:
        """Run a command and say what was done, in the language of the chat."""
        wording = WORDING[await self.language(address, message)]
        if not self.may_run(command, message):
            return wording.not_allowed
        match command:
            case ChatCommand.HELP:
                return wording.help
            case ChatCommand.TITLE:
                return await self._title(address, _title_of(message.text), wording)
            case ChatCommand.RESET:
                await self.reset(address, message.sent_at)
                return wording.reset
            case ChatCommand.NEW:
                await self._begin_anew(address)
                return wording.new
            case ChatCommand.LINK | ChatCommand.UNLINK if message.group:
                # Everyone there would see the code.
                return wording.link_alone
            case ChatCommand.LINK:
                return await self._link(address.scope, " ".join(message.text.split()[1:]), wording)
            case ChatCommand.UNLINK:
                return await self._unlink(address.scope, wording)

    async def news(self, address: Address, message: IncomingMessage) -> str:
        """What the sender has to know of links that were made at another door; empty where there is nothing."""
        try:
            news = None if message.group else await self._people.take_news(address.scope)
            wording = None if news is None else WORDING[await self.language(address, message)]
        except TenutoError as error:
            _log.warning("links of a person were not looked at: %s", error.code)
            return ""
        if wording is None:
            return ""
        return wording.news_linked if news is PersonNews.LINKED else wording.news_unlinked

    async def _link(self, scope: Scope, code: str, wording: ChatWording) -> str:
        if not code:
            shown = await self._people.show_code(scope)
            minutes = self._people.code_life // timedelta(minutes=1)
            return wording.link_code.format(code=shown.text, count=minutes)
        try:
            person = await self._people.use_code(scope, code, by="themselves")
        except LinkCodeRefused:
            return wording.link_refused
        except TooManyLinkCodes:
            return wording.link_later
        except PersonFull as error:
            return wording.link_full.format(limit=error.limit)
        return wording.linked.format(count=len(person.users))

    async def _unlink(self, scope: Scope, wording: ChatWording) -> str:
        try:
            await self._people.unlink(scope, by="themselves", informed=scope.user)
        except IdentityNotFound:
            return wording.unlinked_before
        return wording.unlinked

    async def language(self, address: Address, message: IncomingMessage) -> Language:
        """The language of the last words in a chat, or the app's."""
        texts = [] if parse_command(message.text) is not None else [message.text]
        try:
            newest = await self.newest(address, _READ)
            texts += [one.text for one in reversed(newest) if one.role is Role.USER]
        except SessionNotFound:
            pass
        sample = next((candidate for candidate in texts if any(map(str.isalpha, candidate))), None)
        return language_of(sample) if sample is not None else self._policy.language

    async def newest(self, address: Address, limit: int) -> Sequence[Message]:
        """The newest messages of a session, oldest first.

        Raises:
            SessionNotFound: there is no session yet, or no longer.
        """
        return (await self._sessions.messages(address.scope, address.session_id, Page(limit=limit))).messages

    async def reset(self, address: Address, context_since: datetime | None) -> None:
        """Clear a session, with its title: that quotes what was said."""
        try:
            await self._sessions.reset(address.scope, address.session_id, context_since=context_since)
            await self._sessions.patch(address.scope, address.session_id, Changes(title=""))
        except SessionNotFound:
            return

    async def _begin_anew(self, address: Address) -> None:
        try:
            newest = await self.newest(address, 1)
        except SessionNotFound:
            return
        if newest:
            changes = Changes(window_start=newest[-1].seq + 1)
            await self._sessions.patch(address.scope, address.session_id, changes)

    async def _title(self, address: Address, title: str, wording: ChatWording) -> str:
        try:
            if title:
                session = await self._sessions.patch(address.scope, address.session_id, Changes(title=title))
                return wording.retitled.format(title=session.title)
            session = await self._sessions.get(address.scope, address.session_id)
        except SessionNotFound:
            return wording.untitled
        return wording.title.format(title=session.title) if session.title else wording.untitled


def _title_of(text: str) -> str:
    return " ".join(text.split()[1:])[:MAX_TITLE_CHARACTERS]
