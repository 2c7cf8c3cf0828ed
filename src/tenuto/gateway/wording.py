"""What the gateway itself says in a chat, in the chat's language."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from tenuto.model.prompt import Language
from tenuto.model.values import Value


class ChatWording(Value, frozen=True, kw_only=True):
    """The sentences; `{title}`, `{limit}`, `{count}` and `{code}` are filled in."""

    reset: str
    new: str
    help: str
    title: str
    retitled: str
    untitled: str
    not_allowed: str
    unreadable: str
    too_long: str
    file_too_large: str
    file_missing: str
    unseen: str
    private: str
    spent: str
    failed: str
    stopped: str
    link_code: str
    linked: str
    link_refused: str
    link_later: str
    link_full: str
    link_alone: str
    unlinked: str
    unlinked_before: str
    news_linked: str
    news_unlinked: str


WORDING: Final = MappingProxyType(
    {
        Language.ENGLISH: ChatWording(
            reset="The conversation history is cleared; the next message starts from scratch.",
            new="A new conversation begins. What was said before stays stored, but is no longer used.",
            help=(
                "/reset clears the history of this chat\n"
                "/new begins a new conversation and keeps the old one stored\n"
                "/title shows the title of the conversation; /title and some words change it\n"
                "/link shows a code by which you are known elsewhere as the same person; /link and a code use one\n"
                "/unlink parts you from there again\n"
                "/help shows this list"
            ),
            title="Title: {title}",
            retitled="The title is now: {title}",
            untitled="This conversation has no title yet.",
            not_allowed="Only the members that the operator has listed may do that in this group.",
            unreadable="I have received this, but I cannot read it. Please describe it in words.",
            too_long="This message is too long for me: it may have at most {limit} KB.",
            file_too_large="(Not read: {count} of the files sent. One may have at most {limit} MB, all at most 32 MB.)",
            file_missing="(Not read: {count} of the files sent. They could not be loaded, or are not taken here.)",
            unseen="(This answer was made without some of what was shown in this chat: I could not look at it.)",
            private="This message contains private data that may not be stored here, so I have not read it.",
            spent="The budget for this conversation is used up, so I cannot answer at the moment.",
            failed="Sorry, I could not answer this message. Please send it again in a while.",
            stopped="(stopped)",
            link_code=(
                "Your code: {code}\n"
                "Enter it within {count} minutes where you also talk with me. What is remembered of you is then the "
                "same here and there. Give it to nobody: whoever enters it sees what is remembered of you."
            ),
            linked="Linked: what is remembered of you is now shared by {count} accounts. /unlink parts this one again.",
            link_refused="This code links nothing. Let a new one be shown at the other place.",
            link_later="Too many codes were tried. Please wait a while.",
            link_full="This would be more accounts than one person may have: {limit}.",
            link_alone="Please write this to me alone, not in a group.",
            unlinked="This account is parted from the others. What was said here stays here.",
            unlinked_before="This account is not linked with another one.",
            news_linked=(
                "(This account was linked with another one: what is remembered of you is the same here and there. "
                "If that was not you, send /unlink.)"
            ),
            news_unlinked="(This account was parted from another one.)",
        ),
        Language.CHINESE: ChatWording(
            reset="已清空对话历史，下次对话将从零开始。",
            new="已开始新的对话。之前的内容仍然保存，但不再使用。",
            help=(
                "/reset 清空本聊天的对话历史\n"
                "/new 开始新的对话，保留之前的记录\n"
                "/title 显示对话标题；后面加文字则修改标题\n"
                "/link 显示关联码，让其他入口认出您是同一个人；后面加关联码则使用它\n"
                "/unlink 解除关联\n"
                "/help 显示本列表"
            ),
            title="标题：{title}",
            retitled="标题已改为：{title}",
            untitled="本对话还没有标题。",
            not_allowed="在本群中，只有管理员指定的成员可以执行此操作。",
            unreadable="已收到，但我无法读取这类消息。请用文字描述。",
            too_long="消息太长，我无法处理：最多 {limit} KB。",
            file_too_large="（有 {count} 个文件未读取：单个最大 {limit} MB，合计最大 32 MB。）",
            file_missing="（有 {count} 个文件未读取：无法下载，或不支持该类型。）",
            unseen="（聊天中有些图片或文件我无法查看，以上回答未参考它们。）",
            private="消息中包含不允许在此保存的私人信息，我没有读取它。",
            spent="本对话的额度已用完，暂时无法回答。",
            failed="抱歉，这条消息没能回答。请稍后再发一次。",
            stopped="（已停止）",
            link_code=(
                "您的关联码：{code}\n"
                "请在 {count} 分钟内，在您与我对话的另一个入口输入。之后两边记住的关于您的内容相同。"
                "请勿告诉他人：输入者能看到关于您的记忆。"
            ),
            linked="已关联：{count} 个账号现在共享关于您的记忆。发送 /unlink 可解除本账号的关联。",
            link_refused="此关联码无法使用。请在另一个入口重新获取。",
            link_later="尝试次数过多，请稍后再试。",
            link_full="超过一个人可关联的账号数：{limit}。",
            link_alone="请单独发给我，不要在群里发送。",
            unlinked="本账号已解除关联。在这里说过的内容仍留在这里。",
            unlinked_before="本账号没有关联其他账号。",
            news_linked="（本账号已与另一个账号关联，两边关于您的记忆相同。如非本人操作，请发送 /unlink。）",
            news_unlinked="（本账号已与另一个账号解除关联。）",
        ),
    }
)
