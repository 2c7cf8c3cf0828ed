"""Types that are searched only if a policy asks for them: order numbers, postal addresses, and labelled names.

Without a model these are found by their context: an order number by the word before it, an address by street and
number, a person by "my name is" or 收货人. Values without such a context are not found; do not rely on it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from tenuto.model.patterns import lazy_pattern
from tenuto.privacy.rules.addresses import find_addresses
from tenuto.privacy.rules.common_words import is_common_word
from tenuto.privacy.rules.folding import FoldedText
from tenuto.privacy.rules.span import PiiRule

_ORDER: Final = lazy_pattern(
    r"(?:(?<![A-Za-z])(?:(?:order|purchase|tracking|invoice|ticket|booking|shipment|parcel|commande|bestellung"
    r"|bestell|auftrags?|rechnungs?|sendungs?|pedido|encomenda|ordine|bestelling|bestel|ordre|beställnings?"
    r"|zamówieni[ae]|sipariş)s?(?:[ _-]?(?:id|no\.?|nr\.?|number|code|nummer))?|PO(?=[ :#-]))"
    r"|订单(?:编?号)?|訂單(?:編?號)?|(?:运|快递|物流|退款|工)?单号?|发票(?:号码?)?|(?:运|運|快遞|物流)?單號|注文(?:番号)?"
    r"|주문[ ]?번호|заказа?)"
    r"[\s:#=,]{0,3}(?:(?:is|was|ist|est|es|é|è|er|är|to|jest|lautet|number|numéro|número|numero|nummer|no\.?|nr\.?"
    r"|n[°º.])[\s:]{1,2}|(?<=[a-z])['’]s[ ]|(?<=[호])[는은][ ]?){0,2}(?:是|为|號|号|は)?"
    r"[\s:#=\"'№(]{0,3}(?P<value>[A-Za-z0-9][A-Za-z0-9_-]{4,30})(?![A-Za-z0-9])"
    # Without a label: a hash and at least seven digits, more than a colour or an issue has.
    r"|(?<![\w&#/])[#＃][ ]?(?P<bare>[A-Za-z]{0,4}-?[0-9]{7,20}(?:-[0-9]{1,10}){0,3})(?![A-Za-z0-9])",
    re.IGNORECASE,
)
_HAN: Final = "\u4e00-\u9fff"
_PERSON_EN: Final = lazy_pattern(
    r"(?:\b[Mm]y name is|\b[Nn]ame:|\bMr\.?|\bMrs\.?|\bMs\.?|\bDr\.?|(?P<weak>\bI am|\bI['’]m|\bcontact:?|\battn:?))"
    r"[ ](?!(?:Mr|Mrs|Ms|Dr)\b)"
    r"(?P<value>[A-Z][a-zA-Z\u00c0-\u024f'-]{1,20}(?: [A-Z][a-zA-Z\u00c0-\u024f'.-]{0,20}){0,2})"
)
_SURNAMES: Final = (
    "王李张刘陈杨赵黄周吴徐孙胡朱高林何郭马罗梁宋郑谢韩唐冯于董萧程曹袁邓许傅沈曾彭吕苏卢蒋蔡贾丁魏薛叶阎余潘杜戴夏钟汪田任姜范方石姚谭廖邹熊金陆郝孔白崔"
    "康毛邱秦江史顾侯邵孟龙万段雷钱汤尹黎易常武乔贺赖龚文欧阳司马上官诸葛"
)
_PERSON_ZH: Final = lazy_pattern(
    rf"(?:我叫|姓名|收货人|联系人|收件人|户名|(?P<weak>我是|本人|叫做|患者"
    rf"|乘客))[是为:\s]{{0,3}}(?P<value>[{_SURNAMES}][{_HAN}]{{1,2}}?)"
    rf"(?=[^{_HAN}]|$|[的是在住和与及男女先电手身证请有说了])"
)


def find_on_request(view: FoldedText) -> Iterator[tuple[int, int, PiiRule]]:
    """Order numbers, addresses and names."""
    text = view.text
    view.work.judged += len(text) // 100
    for match in _ORDER.finditer(text):
        if match["bare"] or sum(map(str.isdigit, match["value"])) >= 4:
            yield *match.span("bare" if match["bare"] else "value"), PiiRule.ORDER_ID
    yield from ((*place, PiiRule.ADDRESS) for place in find_addresses(view))
    for pattern in (_PERSON_EN, _PERSON_ZH):
        for match in pattern.finditer(text):
            if not (match["weak"] and is_common_word(match["value"])):
                yield *match.span("value"), PiiRule.PERSON
