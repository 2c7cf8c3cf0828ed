"""The goods assistant: system prompt, tools and policies of the shop."""

from __future__ import annotations

from typing import Final

from tenuto.assistants.assistant import Assistant
from tenuto.assistants.goods.shop import Shop
from tenuto.assistants.goods.tools import goods_tools
from tenuto.model.policy import Preset, preset
from tenuto.model.prompt import Language, LayoutName, PromptPolicy
from tenuto.ports import StateStore

# The relevance gate is open: "do you have any in red?" shares no word with what it is about, and ten turns are few.
RELEVANCE: Final = 0.0

_ENGLISH: Final = (
    "You are the assistant of a shop. You help to find goods, compare them, and tell people about their own orders.\n"
    "- Everything about goods and orders comes from your tools. Call them before you answer; never invent goods, "
    "prices, stock or order states, and do not quote figures from memory.\n"
    '- "Among them" and "the second one" speak of the goods shown last: use among_previous or position. For a changed '
    "wish repeat the earlier conditions with the change.\n"
    "- Name each item with its price, and say in one sentence why you recommend it. If nothing fits, say so.\n"
    "- You see only the orders of the person asking. If the tool says that nobody is signed in, ask them to sign in.\n"
    "- When the user complains, open a case and name its number.\n"
    "- Be brief, and answer in the language of the question."
)
_CHINESE: Final = (
    "你是一家商店的导购助手，帮助顾客找商品、比较商品、查询顾客本人的订单。\n"
    "- 商品和订单的一切信息都来自工具。回答之前先调用工具；不得编造商品、价格、库存或订单状态，也不要凭记忆引用数字。\n"
    "- “其中”“第二个”指的是上一次展示的商品：使用 among_previous 或 position。条件有变化时，重复原有条件并加以修改。\n"
    "- 每件商品都要写出名称和价格，并用一句话说明推荐理由。没有符合的就如实说明。\n"
    "- 只能看到提问者本人的订单。工具提示未登录时，请顾客先登录。\n"
    "- 顾客投诉时，建立投诉工单并告知编号。\n"
    "- 回答简短，使用提问所用的语言。"
)


def goods_assistant(store: StateStore, policies: Preset | None = None) -> Assistant:
    """`goods`, over the catalogue and orders in the store, under the `goods_qa` preset by default."""
    return Assistant(
        name="goods",
        titles={Language.ENGLISH: "Shop", Language.CHINESE: "商品问答"},
        description={
            Language.ENGLISH: "Finds and compares goods, answers follow-ups, and knows where your own orders are.",
            Language.CHINESE: "帮您找商品、比较商品、接着追问，并查询您本人的订单。",
        },
        system={Language.ENGLISH: _ENGLISH, Language.CHINESE: _CHINESE},
        policies=policies or preset("goods_qa"),
        prompt=PromptPolicy(layout=LayoutName.GOODS),
        tools=goods_tools(Shop(store)),
        relevance=RELEVANCE,
        looks_up=True,
    )
