"""The Lark (Feishu) platform on loopback, as a bot meets it: chats and people, callbacks, messages, long connection.

    async with start_lark_platform() as platform:
        chat = platform.p2p("ou_alice")
        event = platform.say(chat, "ou_alice", "hello")
        await platform.deliver(event, to=f"{server}/lark/events")
        reply = await platform.reply_to(event)

It does not imitate: permissions of an app, limits of requests that it was not told to set, cards beyond their JSON (an
update needs no `update_multi`), limits of files, events in several frames, deliveries of its own accord: a test
says when an event is delivered, by which way, and how often.
"""

from tests.lark_platform.callbacks import Callback, Forgery, LarkCredentials
from tests.lark_platform.chats import Chat, Event, Message
from tests.lark_platform.platform import SCHEDULE, Delivered, LarkPlatform, start_lark_platform

__all__ = [
    "SCHEDULE",
    "Callback",
    "Chat",
    "Delivered",
    "Event",
    "Forgery",
    "LarkCredentials",
    "LarkPlatform",
    "Message",
    "start_lark_platform",
]
