"""Words that ask for no goods: greetings, thanks, what can be asked here, and how the shop does business."""

from __future__ import annotations

import re
from typing import Final

from tenuto.assistants.goods.intent import Courtesy, Occasion
from tenuto.model.expression import expression

# How a shop does business is in no catalogue.
_POLICY: Final = expression(
    r"\b(?:do|can|could|will) you (?:deliver|ship|accept|gift[- ]?wrap"
    r"|take (?:credit|debit|cash|paypal|cards?|returns))\b"
    r"|\b(?:can|may|could|how (?:do|can|long)) (?:i|we) (?:return|exchange|send (?:it|them) back|pay)\b"
    r"(?! (?:it|them|one)\b)"
    r"|\b(?:credit cards?|paypal|cash on delivery|free shipping|(?:shipping|delivery) (?:costs?|fees?|times?|options?)"
    r"|(?:return|refund|exchange|shipping|delivery|privacy) polic(?:y|ies)|warranty|guarantee)\b"
    r"|\b(?:discounts?|coupons?|vouchers?|promo(?:tion)?s?|promo codes?|special offers?)\b"
    r"|\b(?:how|where) (?:do|can) (?:i|we) pay\b"
    r"|\bpayment (?:methods?|options?)\b|怎么(?:付款|支付|付钱|买单)|付款方式|支付方式|(?<!不)优惠|打折|折扣|促销|满减"
    r"|货到付款|包邮|运费|邮费|送货上门|(?:支持|可以|能)(?:用)?(?:信用卡|支付宝|微信支付|分期|退货|退换|七天)|保修|质保|退货政策|开发票"
)
# The whole of what was said: a greeting before a question is only skipped.
_COURTESY: Final[tuple[tuple[Occasion, re.Pattern[str]], ...]] = (
    (
        "hello",
        expression(
            r"(?:(?:hello+|hi+|hey+|hiya|howdy|greetings|good (?:morning|afternoon|evening|day))"
            r"(?: (?:there|again|everyone|all|you))?[\s,.!?~]*)+"
            r"|(?:(?:你好|您好|哈喽|哈啰|嗨|大家好|早上好|上午好|中午好|下午好|晚上好|早安|在吗|在么)[啊呀]?[\s,.!?，。！？~]*)+"
        ),
    ),
    (
        "thanks",
        expression(
            r"(?:(?:ok(?:ay)?|great|cool|perfect|nice)[\s,.!]*)?(?:many )?(?:thanks?(?: you| u)?|thx|ty|cheers)"
            r"(?: (?:a lot|so much|very much|again|for (?:the|your) help))*[\s,.!~]*"
            r"|(?:好的?|太好了)?[\s,，!！]*(?:谢谢|多谢|感谢|谢了|辛苦)[你您了啦啊]*[\s,.!，。！~]*"
        ),
    ),
    (
        "bye",
        expression(
            r"(?:good ?)?bye(?: bye)?[\s.!~]*|see you(?: later)?[\s.!~]*|(?:再见|拜拜|回头见)[啦了]?[\s.!。！~]*"
        ),
    ),
    (
        "nothing",
        expression(
            r"(?:(?:no|ok(?:ay)?|oh|well|actually|then|thanks?(?: you)?|for now)[\s,.!]*)*"
            r"(?:never ?mind|forget it|(?:that's|that is|that will be|that would be) (?:all|it|everything)"
            r"|nothing(?: else)?|no,? thanks?(?: you)?|nope|not now|maybe later"
            r"|(?:i )?(?:do not|don't|won't) (?:want|need)(?: to buy)? anything(?: any ?more)?)"
            r"(?:[\s,.!]*(?:thanks?(?: you)?|then|for now|any ?more))*[\s,.!~]*"
            r"|(?:那|那就|哦|嗯|好的?|还是)?[\s,，]*(?:算了|不(?:买|用|看|需要|想买)了?|就这些|没有了|没了|先这样|再说|再看看)"
            r"[吧啦]?[\s,，]*(?:不(?:买|用|看|需要|想买)了|算了|谢谢|再说|先这样)?[吧啦]?[\s,.!，。！~]*"
        ),
    ),
    (
        "help",
        expression(
            r"help(?: me)?[\s.!?]*|(?:what|who) are you[\s?]*"
            r"|(?:what can (?:you do|i ask)|how (?:do|can) you help|how does this work)"
            r"(?: (?:you|here|for me|me))*[\s?]*"
            r"|帮助[。!！]?|你是谁[啊呀?？]*|你(?:能|会|可以)(?:做|干|帮我做)?(?:什么|啥|些什么)[?？]*"
            r"|(?:可以|能)问(?:你)?(?:什么|啥|些什么)[?？]*|怎么用[?？]*"
        ),
    ),
)
# A question that says nothing of what it is about.
_WHY: Final = expression(
    r"(?:but )?(?:why|how come|how so|really|huh|what)(?: (?:not|is that|so))?[\s?.!]*"
    r"|(?:为什么呢?|为啥|怎么会)[\s?？。]*"
)
_QUESTION: Final = expression(
    r"\?\s*$|？\s*$|[吗呢么]\s*$|^(?:why|how|what|which|who|when|where|is|are|does|do|can)\b|为什么|怎么"
)
_ONESELF: Final = expression(r"\b(?:i|i'm|i've|my|me|we|our)\b|[我咱]")
GREETING: Final = expression(
    r"^(?:(?:hello|hi|hey|good (?:morning|afternoon|evening)|thanks?(?: you)?|ok(?:ay)?"
    r"|h+m+|u+h+m*|u+m+|a+h+|oh|well|alright)(?![a-z-])[\s,.!~]*)+"
    r"|^(?:(?:你好|您好|哈喽|嗨|谢谢|好的|请问|嗯+|额|哦)[\s,.!，。！~]*)+"
)


def courtesy(text: str) -> Courtesy | None:
    """The courtesy that is the whole of a folded text."""
    occasion = next((kind for kind, pattern in _COURTESY if pattern.fullmatch(text.strip())), None)
    if occasion is None and _WHY.fullmatch(text.strip()):
        occasion = "unclear"
    return None if occasion is None else Courtesy(occasion=occasion)


def at_a_loss(text: str) -> Courtesy | None:
    """A question that was not understood; what people say or ask of themselves is talk, and no matter of the shop."""
    asks = _QUESTION.search(text) is not None and _ONESELF.search(text) is None
    return Courtesy(occasion="unclear") if asks else None


def about_policy(text: str) -> Courtesy | None:
    """A question about delivery, payment, returns or guarantees."""
    return Courtesy(occasion="policy") if _POLICY.search(text) else None
