"""What the agents tell a model and the user, in both languages."""

from __future__ import annotations

from typing import Final, TypeAlias

from tenuto.assistants.legal.plan import DECIDE, ROUTE, LegalField
from tenuto.model.prompt import Language

Words: TypeAlias = dict[Language, str]
EN, ZH = Language.ENGLISH, Language.CHINESE

ROUTER_ROLE: Final[Words] = {
    EN: "the router of a legal help desk with an expert of labour law and an expert of contract law",
    ZH: "法律咨询台的路由员，咨询台有劳动法专家和合同法专家",
}
ROUTER_TASK: Final[Words] = {
    EN: (
        "Choose the expert for the user's last message. Read it together with the conversation: 'that contract' is the "
        "one that was talked about before, so a part of an employment contract belongs to labour law. Restate the "
        "question so that it is understood without the conversation. Do not answer it."
    ),
    ZH: (
        "为用户的最后一条消息选择专家。请结合对话理解：“上面那份合同”是之前谈到的合同，劳动合同中的条款属于劳动法。"
        "把问题改写成脱离对话也能理解的形式。不要回答问题。"
    ),
}
EXPERT_ROLE: Final[dict[LegalField, Words]] = {
    LegalField.LABOUR: {EN: "an expert of labour law", ZH: "劳动法专家"},
    LegalField.CONTRACT: {EN: "an expert of contract law", ZH: "合同法专家"},
}
EXPERT_TASK: Final[Words] = {
    EN: (
        "Answer the user's question from the texts below and from nothing else; name the id of the text behind each "
        "statement in square brackets, such as [LAB-01]. Take the conversation into account. If you lack a fact that "
        "decides the answer, ask for it instead (`ask`). If the texts do not answer, leave `text` and `ask` empty. "
        "Be brief, in the language of the question.\n\nTexts:\n"
    ),
    ZH: (
        "只根据下列文本回答用户的问题，每个论断后用方括号标出文本编号，例如 [LAB-01]。请结合对话。"
        "缺少决定答案的事实时，改为提问（`ask`）。文本没有答案时，`text` 和 `ask` 留空。"
        "回答简短，使用提问所用的语言。\n\n文本：\n"
    ),
}
DECISION_ROLE: Final[Words] = {EN: "the lawyer who decides what the user is told", ZH: "决定最终答复的律师"}
DECISION_TASK: Final[Words] = {
    EN: (
        "Make one answer of the two experts' opinions below, the first one leading. Add nothing, keep the ids in "
        "square brackets, and be brief, in the language of the question.\n\nOpinions:\n"
    ),
    ZH: (
        "把下面两位专家的意见合成一个答复，以第一位为主。不要增加内容，保留方括号中的编号，简短，"
        "使用提问所用的语言。\n\n意见：\n"
    ),
}

FIELD_NAME: Final[dict[LegalField, Words]] = {
    LegalField.LABOUR: {EN: "Labour law", ZH: "劳动法"},
    LegalField.CONTRACT: {EN: "Contract law", ZH: "合同法"},
}
_EXPERTS: Final[dict[LegalField, Words]] = {
    LegalField.LABOUR: {EN: "Expert of labour law", ZH: "劳动法专家"},
    LegalField.CONTRACT: {EN: "Expert of contract law", ZH: "合同法专家"},
}
STEPS: Final[dict[str, Words]] = {
    ROUTE: {EN: "Choice of the expert", ZH: "选择专家"},
    **{field.value: words for field, words in _EXPERTS.items()},
    **{f"{field}-beside": words for field, words in _EXPERTS.items()},
    DECIDE: {EN: "Decision", ZH: "形成结论"},
}
ROUTER_ASKS: Final[Words] = {
    EN: "I found nothing about this. Is it about work or about a contract, and which point of it?",
    ZH: "我没有找到相关内容。这是关于工作还是关于合同，具体是哪一点？",
}
ROUTER_UNSURE: Final[Words] = {
    EN: "This may be a question of labour law or of contract law. Which of the two do you mean?",
    ZH: "这可能是劳动法问题，也可能是合同法问题。您指的是哪一个？",
}
EXPERT_ASKS: Final[Words] = {
    EN: "{field}: I found nothing about this. Which point do you mean, for example pay, notice or a certain clause?",
    ZH: "{field}：我没有找到相关内容。您指的是哪一点，例如报酬、通知期或某个条款？",
}
NOTHING_FOUND: Final[Words] = {
    EN: "The texts say nothing about this, and I should not guess.",
    ZH: "现有文本没有相关内容，我不便猜测。",
}
NOT_ANSWERED: Final[Words] = {EN: "{field}: the expert could not answer.", ZH: "{field}：专家未能答复。"}
FOOTER: Final[Words] = {EN: "Sample texts, no legal advice.", ZH: "示例文本，不构成法律意见。"}
