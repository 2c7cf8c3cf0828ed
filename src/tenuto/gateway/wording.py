"""What the gateway itself says in a chat, in the chat's language."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from tenuto.model.prompt import Language
from tenuto.model.values import Value


class ChatWording(Value, frozen=True, kw_only=True):
    """The sentences; `{title}` and `{limit}` are filled in."""

    reset: str
    new: str
    help: str
    title: str
    retitled: str
    untitled: str
    not_allowed: str
    text_only: str
    too_long: str
    private: str
    spent: str
    failed: str
    stopped: str


WORDING: Final = MappingProxyType(
    {
        Language.ENGLISH: ChatWording(
            reset="The conversation history is cleared; the next message starts from scratch.",
            new="A new conversation begins. What was said before stays stored, but is no longer used.",
            help=(
                "/reset clears the history of this chat\n"
                "/new begins a new conversation and keeps the old one stored\n"
                "/title shows the title of the conversation; /title and some words change it\n"
                "/help shows this list"
            ),
            title="Title: {title}",
            retitled="The title is now: {title}",
            untitled="This conversation has no title yet.",
            not_allowed="Only the members that the operator has listed may do that in this group.",
            text_only="I have received this, but I can read text only. Please describe it in words.",
            too_long="This message is too long for me: it may have at most {limit} KB.",
            private="This message contains private data that may not be stored here, so I have not read it.",
            spent="The budget for this conversation is used up, so I cannot answer at the moment.",
            failed="Sorry, I could not answer this message. Please send it again in a while.",
            stopped="(stopped)",
        ),
        Language.CHINESE: ChatWording(
            reset="已清空对话历史，下次对话将从零开始。",
            new="已开始新的对话。之前的内容仍然保存，但不再使用。",
            help=(
                "/reset 清空本聊天的对话历史\n"
                "/new 开始新的对话，保留之前的记录\n"
                "/title 显示对话标题；后面加文字则修改标题\n"
                "/help 显示本列表"
            ),
            title="标题：{title}",
            retitled="标题已改为：{title}",
            untitled="本对话还没有标题。",
            not_allowed="在本群中，只有管理员指定的成员可以执行此操作。",
            text_only="已收到，但我只能阅读文字。请用文字描述。",
            too_long="消息太长，我无法处理：最多 {limit} KB。",
            private="消息中包含不允许在此保存的私人信息，我没有读取它。",
            spent="本对话的额度已用完，暂时无法回答。",
            failed="抱歉，这条消息没能回答。请稍后再发一次。",
            stopped="（已停止）",
        ),
    }
)
