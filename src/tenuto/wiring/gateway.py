"""The wiring of a gateway: an app of a chat platform, the turns, and the store."""

from __future__ import annotations

from msgspec.structs import replace

from tenuto.chat import Chat
from tenuto.gateway.commands import Commands
from tenuto.gateway.inbox import Inbox
from tenuto.gateway.responder import Responder
from tenuto.gateway.service import Gateway
from tenuto.model import Scope
from tenuto.model.channel import ChannelPolicy
from tenuto.model.policy import OnMissing
from tenuto.model.privacy import Sink
from tenuto.ports import Channel, Clock, StateStore
from tenuto.privacy.redactor import Redactor, Slot
from tenuto.sessions import Sessions, fresh_id
from tenuto.settings import Settings


def make_gateway(
    settings: Settings,
    channel: Channel,
    policy: ChannelPolicy,
    *,
    chat: Chat,
    sessions: Sessions,
    state: StateStore,
    redactor: Redactor,
    clock: Clock,
) -> Gateway:
    """The gateway of an app.

    Raises:
        AssistantNotFound: there is no such assistant as the policy names.
    """
    chat.assistants.find(policy.assistant)
    session_policy = replace(settings.channel_policies().sessions, on_missing=OnMissing.ADOPT)
    commands = Commands(sessions=sessions, policy=policy)

    async def redact(scope: Scope, text: str) -> str:
        (kept,) = (await redactor.texts(Sink.MESSAGE, scope, None, [Slot(text)])).texts
        return kept

    return Gateway(
        channel=channel,
        policy=policy,
        inbox=Inbox(state=state, app=f"{channel.name}:{channel.app}", policy=policy, clock=clock),
        responder=Responder(channel=channel, policy=policy, chat=chat, commands=commands, sessions=session_policy),
        commands=commands,
        redact=redact,
        clock=clock,
        worker=fresh_id(),
        max_message_bytes=session_policy.max_message_bytes,
    )
