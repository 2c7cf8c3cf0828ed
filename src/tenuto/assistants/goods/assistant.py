"""The goods assistant: the shop's words, tools and policies put together."""

from __future__ import annotations

from typing import Final

from tenuto.assistants.assistant import Assistant
from tenuto.assistants.goods.order_tool import MyOrders
from tenuto.assistants.goods.shop import Catalogue
from tenuto.assistants.goods.tools import GoodsDetails, SearchGoods, ShopHelp
from tenuto.model.policy import Preset, preset
from tenuto.model.prompt import Language, LayoutName, PromptPolicy
from tenuto.ports import StateStore

# Any talk may enter the prompt: in a shop "do you have any in red?" shares no word with what it is about, and ten turns
# are few. A gate that compares words would cut off more follow-ups than it saves tokens.
RELEVANCE: Final = 0.0

_ENGLISH: Final = (
    "You are the assistant of a shop. You help to find goods, compare them, and tell people about their own orders.\n"
    "- Everything about goods and orders comes from your tools: search_goods, goods_details, my_orders. Call them "
    "before you answer; never invent goods, prices, stock or order states, and do not quote figures from memory.\n"
    '- "Among them", "the second one", "cheaper ones" speak of the goods shown last: use among, places, or the earlier '
    "conditions with the change.\n"
    "- Name each item with its price, and say in one sentence why you recommend it. If nothing fits, say so and offer "
    "the nearest that the tools brought.\n"
    "- You see only the orders of the person asking. If the tool says that nobody is signed in, ask them to sign in.\n"
    "- Be brief, and answer in the language of the question."
)
_CHINESE: Final = (
    "你是一家商店的导购助手，帮助顾客找商品、比较商品、查询顾客本人的订单。\n"
    "- 商品和订单的一切信息都来自工具：search_goods、goods_details、my_orders。回答之前先调用工具；"
    "不得编造商品、价格、库存或订单状态，也不要凭记忆引用数字。\n"
    "- “其中”“第二个”“更便宜的”指的是上一次展示的商品：使用 among、places，或者在原有条件上修改。\n"
    "- 每件商品都要写出名称和价格，并用一句话说明推荐理由。没有符合的就如实说明，并给出工具返回的相近商品。\n"
    "- 只能看到提问者本人的订单。工具提示未登录时，请顾客先登录。\n"
    "- 回答简短，使用提问所用的语言。"
)


def goods_assistant(store: StateStore, policies: Preset | None = None) -> Assistant:
    """`goods`, over the catalogue and orders in the store, under the `goods_qa` preset unless told otherwise."""
    catalogue = Catalogue(store)
    return Assistant(
        name="goods",
        titles={Language.ENGLISH: "Shop", Language.CHINESE: "商品问答"},
        about={
            Language.ENGLISH: "Finds and compares goods, answers follow-ups, and knows where your own orders are.",
            Language.CHINESE: "帮您找商品、比较商品、接着追问，并查询您本人的订单。",
        },
        system={Language.ENGLISH: _ENGLISH, Language.CHINESE: _CHINESE},
        policies=policies or preset("goods_qa"),
        prompt=PromptPolicy(layout=LayoutName.GOODS),
        tools=(SearchGoods(catalogue), GoodsDetails(catalogue), MyOrders(catalogue), ShopHelp(catalogue)),
        relevance=RELEVANCE,
    )
