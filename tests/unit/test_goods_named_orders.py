"""Asked about one thing, told of that thing: which orders a question names, and whose it asks for (B16, A30)."""

from __future__ import annotations

from datetime import date, timedelta

import pytest

from tenuto.assistants.goods import Order, OrderStatus, goods_assistant, replace_orders
from tenuto.model import Scope
from tenuto.stores.memory import MemoryStore
from tests.clock import START
from tests.unit.shop import ANN, BOB, SOMEBODY, Shop

PROJECTOR, BAG, EARBUDS, STAND = "GD202611144192", "GD202611114122", "GD202610154144", "GD202610034163"
ALL = [PROJECTOR, BAG, EARBUDS, STAND]
GAME, CHOCOLATE = "GD202610134243", "GD202610254213"
PETS_AND_MORE = Scope(tenant="acme", user="1005")
KETTLE, RABBIT, SANDALS, ORANGES, KITTEN = (
    *("GD202611134591", "GD202611034575", "GD202610134450", "GD202610114519", "GD202609194467"),
)


def shown(shop: Shop) -> list[str]:
    return [order["id"] for order in shop.outcome.data["orders"]]


NAMED = [
    ("睡袋到哪了", BAG),
    ("充电支架签收了吗", STAND),
    ("投影仪什么时候能到", PROJECTOR),
    ("睡袋怎么还没到", BAG),
    ("我买的耳机发货没", EARBUDS),
    ("那个投影仪发货了吗", PROJECTOR),
    ("耳机多少钱买的", EARBUDS),
    ("睡袋花了我多少钱", BAG),
    ("投影仪的订单", PROJECTOR),
    ("has the charging stand arrived?", STAND),
    ("is the projector on its way?", PROJECTOR),
    ("when will my sleeping bag be delivered?", BAG),
    ("when was the projector ordered?", PROJECTOR),
    ("what's the status of the earbuds?", EARBUDS),
    ("what happened to my projector?", PROJECTOR),
    ("tracking number for the sleeping bag", BAG),
    ("how much did I pay for the earbuds?", EARBUDS),
    ("what did I spend on headphones?", EARBUDS),
    ("has my daughter's projector shipped yet?", PROJECTOR),
    ("I never received the earbuds", EARBUDS),
    ("my sleeping bag still hasn't arrived", BAG),
    ("投影仪为什么取消了", PROJECTOR),
]


@pytest.mark.parametrize(("question", "order"), NAMED)
@pytest.mark.parametrize("before", [(), ("my orders", "the first one"), ("我的订单", "第二个"), ("my orders",)])
async def test_what_is_named_is_told_whatever_was_spoken_of(question: str, order: str, before: tuple[str, ...]) -> None:
    shop = Shop(scope=ANN)
    for earlier in before:
        await shop.ask(earlier)

    await shop.ask(question)

    assert shop.tool == "my_orders"
    assert shown(shop) == [order]


@pytest.mark.parametrize(
    ("question", "order"),
    [
        ("where is the projector?", PROJECTOR),
        ("the earbuds", EARBUDS),
        ("how much was the sleeping bag?", BAG),
        ("what about my charging stand?", STAND),
        ("睡袋在哪", BAG),
        ("那投影仪呢", PROJECTOR),
    ],
)
async def test_after_orders_were_shown_a_name_is_enough(question: str, order: str) -> None:
    shop = Shop(scope=ANN)
    await shop.ask("my orders")

    await shop.ask(question)

    assert shown(shop) == [order]


@pytest.mark.parametrize(
    "question",
    ["did my projector and the earbuds arrive?", "投影仪和耳机到了吗", "has the projector or my headphones shipped?"],
)
async def test_of_several_that_are_named_each_is_told(question: str) -> None:
    shop = Shop(scope=ANN)

    await shop.ask(question)

    assert shown(shop) == [PROJECTOR, EARBUDS]


@pytest.mark.parametrize("question", ["what did I buy?", "我买过什么", "what have I ordered so far?", "我一共买了几单"])
async def test_what_was_bought_in_all_is_more_than_the_one_spoken_of(question: str) -> None:
    shop = Shop(scope=ANN)
    await shop.ask("my orders")
    await shop.ask("the second one")

    await shop.ask(question)

    assert shown(shop) == ALL


@pytest.mark.parametrize("question", ["手机到哪了", "书发货了吗", "has my kettle arrived?", "did the laptop ship?"])
async def test_what_was_never_ordered_has_no_status_of_another_order(question: str) -> None:
    shop = Shop(scope=ANN)
    await shop.ask("my orders")
    await shop.ask("the first one")

    answer = await shop.ask(question)

    assert answer.startswith(("None of your orders is like that.", "您的订单里没有这样的。"))
    assert shown(shop) == ALL


@pytest.mark.parametrize(
    "question",
    ["它什么时候到", "到哪了", "大概什么时候到", "这单发货了吗", "has it shipped?", "how much did I pay for it?"],
)
async def test_where_nothing_is_named_it_is_the_one_spoken_of(question: str) -> None:
    """Beside the above: this goes on as it was."""
    shop = Shop(scope=ANN)
    await shop.ask("my orders")
    await shop.ask("the second one")

    answer = await shop.ask(question)

    assert shown(shop) == [BAG]
    assert "3,364" not in answer


@pytest.mark.parametrize(
    "question",
    [
        "does the phone ship with a charger?",
        "do the shoes come in red?",
        "is the laptop sold out?",
        "a case for the phone I bought",
        "what did people buy most?",
        "can I order a phone?",
        "free shipping on orders over 50",
        "children's books",
        "评分没到4分的手机",
        "不到2000的手机",
        "买过的人多吗",
        "最近买什么手机好",
        "手机可以退货吗",
        "有退烧药吗",
        "单反相机",
        "孩子的玩具",
    ],
)
def test_what_is_asked_of_goods_asks_for_no_orders(question: str) -> None:
    assert "my_orders" not in [tool.spec.name for tool, _ in Shop().wanted(question)]


@pytest.mark.parametrize("question", ["cheap phones?", "the cheapest phone", "有什么便宜的手机", "do you have a tent?"])
async def test_after_orders_were_shown_goods_are_still_found(question: str) -> None:
    shop = Shop(scope=ANN)
    await shop.ask("my orders")

    await shop.ask(question)

    assert shop.tool == "search_goods"


@pytest.mark.parametrize(
    ("question", "orders"),
    [
        ("did I ever buy oranges?", [ORANGES]),
        ("have I ordered a kettle before?", [KETTLE]),
        ("which shoes did I buy?", [SANDALS]),
        ("how many kettles did I order?", [KETTLE]),
        ("我买过猫粮吗", [KITTEN]),
        ("凉鞋我买过吗", [SANDALS]),
        ("我有没有买过玩具", [RABBIT]),
        ("我买了几双鞋", [SANDALS]),
        ("我什么时候买的脐橙", [ORANGES]),
    ],
)
async def test_what_was_ever_bought_is_found_among_the_orders(question: str, orders: list[str]) -> None:
    shop = Shop(scope=PETS_AND_MORE)

    await shop.ask(question)

    assert shop.tool == "my_orders"
    assert shown(shop) == orders


@pytest.mark.parametrize(
    "question", ["did I ever buy a phone?", "have I bought a tent?", "我买过狗粮吗", "我买过手机没"]
)
async def test_what_was_never_bought_is_said_to_be_none(question: str) -> None:
    shop = Shop(scope=PETS_AND_MORE)

    assert (await shop.ask(question)).startswith(("None of your orders", "您的订单里没有这样的"))


async def test_a_kind_that_was_not_bought_is_not_its_category() -> None:
    """A diving watch is no smartwatch."""
    shop = Shop(scope=Scope(tenant="acme", user="1007"))

    smart = await shop.ask("did I ever order a smartwatch?")
    await shop.ask("did I ever order a watch?")

    assert smart.startswith("None of your orders")
    assert shown(shop) == ["GD202610284677"]


@pytest.mark.parametrize(
    ("question", "orders"),
    [
        ("returned orders", [GAME]),
        ("the delivered one", [CHOCOLATE]),
        ("did I return anything?", [GAME]),
        ("退货的那单", [GAME]),
        ("已签收的订单", [CHOCOLATE]),
        ("我有没有退过货的订单", [GAME]),
        ("有退货的吗", [GAME]),
    ],
)
async def test_orders_are_asked_for_by_their_state_alone(question: str, orders: list[str]) -> None:
    shop = Shop(scope=BOB)
    await shop.ask("my orders")

    await shop.ask(question)

    assert shown(shop) == orders


@pytest.mark.parametrize(
    "question",
    [
        "未付款的订单",
        "还有没付款的订单吗",
        "取消的订单",
        "有没有取消过的订单",
        "退款中的订单",
        "unpaid orders",
        "paid but not shipped orders",
        "cancelled orders",
        "did I cancel anything?",
        "orders that are still on the way",
    ],
)
async def test_a_state_that_no_order_has_is_said_to_be_none(question: str) -> None:
    shop = Shop(scope=BOB)

    answer = await shop.ask(question)

    assert answer.startswith(("None of your orders is like that.", "您的订单里没有这样的。"))
    assert shop.outcome.output["cannot"] is None


@pytest.mark.parametrize("question", ["取消订单", "帮我取消", "把第一个取消了", "cancel my order", "取消投影仪"])
async def test_whoever_wants_to_cancel_is_told_that_it_cannot_be_done_here(question: str) -> None:
    """Beside the above: a wish is no question."""
    shop = Shop(scope=ANN)
    await shop.ask("my orders")

    await shop.ask(question)

    assert shop.outcome.output["cannot"] == "cancel"


@pytest.mark.parametrize("question", ["are my orders delivered?", "have my orders shipped?", "快递到了没", "退款了吗"])
async def test_whether_they_stand_so_is_told_of_all(question: str) -> None:
    shop = Shop(scope=ANN)

    await shop.ask(question)

    assert shown(shop) == ALL


@pytest.mark.parametrize(
    ("question", "told", "count"),
    [
        ("how many orders do I have?", "Those are 4 orders.", 4),
        ("how many packages are on the way?", "That is one order.", 1),
        ("how many of my orders were delivered?", "Those are 2 orders.", 2),
        ("我有几个订单", "一共 4 个订单。", 4),
        ("有多少个订单还没发货", "一共 1 个订单。", 1),
        ("一共几单", "一共 4 个订单。", 4),
    ],
)
async def test_orders_are_counted(question: str, told: str, count: int) -> None:
    shop = Shop(scope=ANN)

    answer = await shop.ask(question)

    assert answer.startswith(told)
    assert len(shown(shop)) == count


@pytest.mark.parametrize(
    ("question", "none"),
    [
        ("how many orders over $1000 do I have?", "None of your orders is like that."),
        ("orders over 100 euros", "None of your orders is like that."),
        ("超过100美元的订单", "您的订单里没有这样的。"),
    ],
)
async def test_an_amount_in_other_money_counts_no_order(question: str, none: str) -> None:
    assert (await Shop(scope=ANN).ask(question)).startswith(none)


@pytest.mark.parametrize(
    ("question", "orders"),
    [
        ("orders over 1000", [PROJECTOR]),
        ("my orders under 400", [BAG, EARBUDS]),
        ("超过400元的订单", [PROJECTOR, STAND]),
        ("两百以下的订单", [EARBUDS]),
        ("what was my most expensive order?", [PROJECTOR]),
        ("我最便宜的一单", [EARBUDS]),
        ("my last order?", [PROJECTOR]),
        ("最近一单是什么", [PROJECTOR]),
        ("上一个订单", [PROJECTOR]),
        ("my oldest order", [STAND]),
        ("最早的订单", [STAND]),
    ],
)
async def test_orders_are_asked_for_by_what_they_cost_and_as_the_one_of_all(question: str, orders: list[str]) -> None:
    """The latest is the latest of all, also where only some were shown before."""
    shop = Shop(scope=ANN)
    await shop.ask("my orders from october")
    await shop.ask("the second one")

    await shop.ask(question)

    assert shown(shop) == orders


@pytest.mark.parametrize(
    ("question", "order"),
    [("哪个最贵", PROJECTOR), ("which is the cheapest?", EARBUDS), ("which of them cost the most?", PROJECTOR)],
)
async def test_the_dearest_of_the_orders_shown_is_no_goods(question: str, order: str) -> None:
    shop = Shop(scope=ANN)
    await shop.ask("my orders")

    await shop.ask(question)

    assert shown(shop) == [order]


def made(id_: str, day: date) -> Order:
    return Order(id=id_, item="PH101", name="Phone", status=OrderStatus.PAID, ordered_on=day, total=10)


@pytest.mark.parametrize(
    ("question", "orders"),
    [
        ("what did I order today?", ["A-1"]),
        ("yesterday's orders", ["A-2"]),
        ("what did I buy last week?", ["A-3"]),
        ("orders this year", ["A-1", "A-2", "A-3"]),
        ("what did I order last year?", ["A-4"]),
        ("any orders from 2025?", ["A-4"]),
        ("my orders from november 2024", ["A-5"]),
        ("昨天买了什么", ["A-2"]),
        ("上周的订单", ["A-3"]),
        ("去年买了什么", ["A-4"]),
        ("2024年的订单", ["A-5"]),
        ("will my order arrive today?", ["A-1", "A-2", "A-3", "A-4", "A-5"]),
    ],
)
async def test_orders_are_asked_for_by_when_they_were_made(question: str, orders: list[str]) -> None:
    """It is a Thursday in January 2026."""
    today = START.date()
    days = [today, today - timedelta(days=1), today - timedelta(days=8), date(2025, 3, 1), date(2024, 11, 5)]
    store = MemoryStore()
    await replace_orders(store.state, ANN, [made(f"A-{number}", day) for number, day in enumerate(days, 1)])
    shop = Shop(goods_assistant(store.state), ANN)

    await shop.ask(question)

    assert shown(shop) == orders


async def test_what_one_thing_cost_is_no_sum_of_others() -> None:
    shop = Shop(scope=BOB)

    answer = await shop.ask("what did I pay for the board game?")

    assert "¥375" in answer
    assert "¥190" not in answer
    assert "Together" not in answer


@pytest.mark.parametrize(
    ("complaint", "order"),
    [
        ("I want to return the earbuds", EARBUDS),
        ("I'd like to send back my sleeping bag", BAG),
        ("我想退耳机", EARBUDS),
        ("把睡袋退了吧", BAG),
        ("充电支架我想退了", STAND),
    ],
)
async def test_what_is_to_go_back_is_one_s_own_order_and_no_goods(complaint: str, order: str) -> None:
    shop = Shop(scope=ANN)

    await shop.ask(complaint)

    assert shop.outcome.output["complaint"]
    assert shown(shop) == [order]


@pytest.mark.parametrize("scope", [ANN, SOMEBODY], ids=["signed in", "visitor"])
@pytest.mark.parametrize(
    "question",
    [
        "my friend Bob's order",
        "Where is Tom's parcel?",
        "my mother's package",
        "show me her orders",
        "orders of user 1002",
        "what did my husband order?",
        "Alice's order status",
        "帮我查一下我老婆的订单",
        "他的快递到哪了",
        "我同事买了什么",
        "张伟的订单",
        "用户1002的订单",
    ],
)
async def test_somebody_else_s_orders_are_neither_shown_nor_mistaken_for_one_s_own(question: str, scope: Scope) -> None:
    """A30: also where one has orders of one's own to show."""
    shop = Shop(scope=scope)

    answer = await shop.ask(question)

    assert ("nobody else's" in answer) or ("看不到别人的" in answer)
    assert "GD2026" not in answer
    assert shop.outcome.data == {}


@pytest.mark.parametrize(
    "question",
    [
        "where's my order?",
        "what's my order status",
        "today's orders",
        "我的订单",
        "查一下我的快递",
        "给我老婆买的投影仪到哪了",
    ],
)
async def test_one_s_own_orders_are_nobody_else_s(question: str) -> None:
    """Beside the above: what's and today's are no people."""
    shop = Shop(scope=ANN)

    await shop.ask(question)

    assert PROJECTOR in shown(shop)


async def test_a_name_that_goods_have_is_no_person_s() -> None:
    shop = Shop(scope=ANN)

    await shop.ask("the projector's order status")

    assert shown(shop) == [PROJECTOR]
