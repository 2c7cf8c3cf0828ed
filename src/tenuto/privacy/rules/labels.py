"""Labels: words around a number that say what it is, in English, Chinese, Japanese, Korean and German.

The nearest label decides. Labels are looked up word by word in a table; a run of Chinese, Japanese or Korean characters
has no spaces, so there every ending of it is looked up, longest first.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import Enum, auto
from typing import Final, NamedTuple

from tenuto.model.patterns import lazy_pattern

REACH: Final = 48
"""How far to the left a label is searched."""
REACH_AFTER: Final = 24
CLOSE_AFTER: Final = 4
"""A close label to the right begins within this many characters."""


class Label(Enum):
    """What a word says about the number next to it."""

    PHONE = auto()
    CALL = auto()
    """A verb: a number may follow, but it does not name one."""
    CARD = auto()
    SSN = auto()
    CN_ID = auto()
    PASSPORT = auto()
    JOIN = auto()
    """For a group or a person: only the form of the number decides which."""
    IP = auto()
    VERSION = auto()
    NUMBER = auto()
    """Only says that a number follows: the label before it says which."""
    OTHER = auto()
    """Some other number: an order, a ticket, a date, an amount."""


class LabelContext(NamedTuple):
    """The nearest label, and whether only a connector is between it and the number."""

    label: Label | None
    close: bool


NOTHING: Final = LabelContext(None, False)


def words(text: str) -> list[str]:
    """The words of a table that is written as text, for readability."""
    return text.split()


_WORDS: Final[dict[Label, str]] = {
    Label.PHONE: """
        phone phones telephone tel telefon telefonnummer mobile mob cell cellphone handy handynummer mobil
        mobilnummer fax telefax whatsapp hotline landline rufnummer phonenumber mobileno phoneno smartphone desk
        office durchwahl festnetz tele ph sms handynr telnr wechat telegram signal viber kakao kakaotalk zalo
        电话 电话号码 手机 手机号 手机号码 座机 固话 传真 热线 联系方式 联系电话 联系号码 移动电话 號碼是 電話
        電話番号 電話號碼 手機 手機號碼 携帯 携帯電話 携帯番号 ファックス 微信同号 微信号 微信 联系人 客服 来电
        本机号码 本机 尾号 备用号码 备用号 预留号码 登记号码 常用号码 紧急号码 绑定号码 注册号码 私人号码 工作号码
        家里号码 新号码 旧号码 전화 전화번호 휴대폰 핸드폰 연락처 휴대전화 팩스 대표번호 고객센터 대표전화 문의
    """,
    Label.CALL: """
        call calls called calling dial text texted ring reach contact ruf anrufen erreichen erreichbar answering
        callback voicemail messages
        打 拨打 致电 拨 联系 联系我 打给我 打给 加我 呼叫 回电 短信 发短信 通话 連絡 連絡先 연락 联络 找我
        我的号 你的号 他的号 她的号 这个号 那个号
    """,
    Label.JOIN: "加群 进群 入群 拉群 进微信群 加微信群",
    Label.CARD: """
        card cards creditcard debitcard cardnumber visa mastercard amex maestro discover unionpay jcb diners
        kreditkarte kartennummer ec-karte karte bankkarte pan cc debit
        信用卡 信用卡号 卡号 银行卡 银行卡号 储蓄卡 借记卡 工资卡 银联卡 卡片 付款卡 招行卡 建行卡 工行卡 农行卡
        中行卡 账户 账号 收款账号 卡 カード カード番号 クレジットカード クレカ 카드 카드번호 신용카드 卡號
        信用卡號 銀行卡 帐号 收款卡
    """,
    Label.SSN: """
        ssn ssns socialsecurity socsec social
        社会安全号 社会安全号码 社会安全码 社会安全卡号 社安号 社安号码 社安码 社安卡号 社保号 社保号码
        社会保障号 社会保障号码 社会保险号 社会保险号码 사회보장번호 社会保障番号
    """,
    Label.CN_ID: """
        idcard
        身份证 身份证号 身份证号码 身分证 身份證 身份證號 证件号 证件号码 公民身份号码 公民身份证 证件 身份证件
        居民身份证
    """,
    Label.PASSPORT: """
        passport passports passportno passportnumber passportnum reisepass reisepassnummer reisepassnr reisepasses
        passnummer passnr passeport pasaporte passaporto
        护照 护照号 护照号码 护照编号 護照 護照號碼 護照號 パスポート パスポート番号 旅券 旅券番号 여권 여권번호
    """,
    Label.NUMBER: """
        number numbers no nr num nummer numéro
        号码 號碼 番号 번호
    """,
    Label.IP: """
        ip ips ipv host server address addr gateway dns peer client src dst
        地址 网关 服务器 主机 内网 外网 公网 アドレス 서버
    """,
    Label.VERSION: """
        v ver version versions vers versioned release build firmware section sec chapter clause paragraph para
        article appendix annex annexe anhang fig figure table oid step rev revision net openssl openssh ffmpeg python
        java php ruby gcc cuda jdk android ios macos windows photoshop log4j electron edge opera zlib curl kernel
        chrome safari firefox sdk upgrade upgraded kapitel abschnitt kap
        版本 版本号 版 章节 节 条款 附录 固件 驱动 升级 升级到 升到 降到 回退到 回滚到 更新到 降级到 内核
        バージョン 버전
    """,
    Label.OTHER: """
        sn tag order orders orderid orderno ticket tickets tracking trackingno invoice ref reference serial serialno
        sku id ids uid userid isbn issn imei imsi ean upc gtin barcode batch lot job jobs case commit hash sha
        md5 crc epoch timestamp ts unix port zip zipcode postcode postal otp code codes pin model part partno
        item product asin amount total price usd eur gbp rmb cny jpy sum balance count qty quantity meter meters
        coordinates lat lng lon latitude longitude account acct transaction txn trace request req session seq
        sequence number# row rows record records waybill parcel shipment package awb tax vat itin ein license
        licence plate vin policy claim contract po pr issue issues bug error errno err exit status size bytes
        byte length duration elapsed ms seconds uptime pid ppid thread qq group room booking confirmation
        reservation flight receipt crate rma doi arxiv pmid cas bestellung bestellnummer rechnung
        rechnungsnummer kundennummer auftrag auftragsnummer sendungsnummer artikelnummer vorgangsnummer
        aktenzeichen plz betrag datum zeichen views followers population revenue distance mileage odometer steps
        counter index offset meeting meetings webinar conference zoom webex gate seat locker key keys node nodes nonce
        block height sensor reading device channel epoch_ms
        created_at updated_at expires exp iat time date born year years
        第 订单 订单号 订单编号 单号 运单 运单号 快递 快递单号 快递号 物流 物流单号 流水 流水号 编号 工单 工单号
        批次 批次号 序列号 条码 条形码 发票 发票号 发票号码 合同 合同号 合同编号 案号 工号 学号 群号 邮编
        邮政编码 验证码 校验码 动态码 激活码 兑换码 时间戳 任务 任务号 任务编号 任务id 日志 金额 总额
        价格 余额 合计 共计 数量 库存 浏览量 播放量 人口 公里 票号 车票 航班 航班号 取件码 提货码 交易 交易号
        交易流水 交易单号 商户号 商户订单号 商品 商品编码 商品编号 货号 料号 型号 送り状番号 税号 信用代码
        统一社会信用代码 保单号 保单 车架号 发动机号 设备号 会议号 会议 会议室 电话会议 房间号 座位号 门牌号
        微信群号 微信群 群 书号 错误码
        号段 准考证 准考证号 学籍号 病历号 住院号 就诊号 图书编号 编码 代码 参考号 申请号 受理号 专利号 批号
        备案号 记录 请求 请求号 编 端口 进程 耗时 坐标 经度 纬度 日期 时间 出生 年份 微信支付单号 支付单号
        退款单号 出库单 入库单 采购单 采购单号 提单 提单号 追踪号 用户编号 会员号 会员卡号 礼品卡号 购物卡号
        校园卡号 门禁卡号 注文 注文番号 追跡番号 伝票番号 問い合わせ番号 会員番号 予約番号 製造番号 郵便番号
        認証コード 金額 日付 주문 주문번호 송장 송장번호 운송장 운송장번호 예약번호 회원번호 인증번호 우편번호
        금액 시리얼 訂單 訂單號 單號 運單號
    """,
}
_TABLE: Final[dict[str, Label]] = {word: label for label, text in _WORDS.items() for word in words(text)}
_LONGEST: Final = 8
_FIRST: Final = frozenset(word[0] for word in _TABLE)
_LAST: Final = frozenset(word[-1] for word in _TABLE)
_TOKEN: Final = lazy_pattern("[a-zäöüß]+|[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]+")
_WORDY: Final = lazy_pattern(r"[^\x00-@\[-`{-\x7f]")
# Between a label and its value: a colon, "is", 是, a bracket, "number", 号码 ...
_CONNECTOR: Final = lazy_pattern(
    r"""[\s:=#"'`|*<>(\[{,“”‘「『【《-]*(?:(?:is|are|was|at|on|from|no|nr|num|number|numbers|to|me|us|him|her|via|under|lautet|ist|unter|
    die|now|here|new|my|the|please|and|or|home|work|office|registered|code|id|line)\b[\s:.=#"'`*<(\[“‘「『【《]*){0,3}\+?"""
    r"""|[\s:="'`*<(\[“‘「『【《]*(?:[号號]?[码碼]?[是为為:はがの는은이가]|番号は?|です|또는|或|和|请打|一下|我|他|她|给我|[号號][码碼]?|번호는?)?[\s:=#"'`*<(\[“‘「『【《]*\+?""",
    re.VERBOSE,
)


# The most common ones, checked before the regex.
_PLAINLY: Final = frozenset(
    {"", " ", ":", ": ", " is ", " is: ", " is +", " +", ": +", "是", "：", "为", "=", "#", " #"}
)
# A label followed by its own number: "…187 fax: 555-0188", 传真555-0188.
_HEADS_ANOTHER: Final = lazy_pattern(
    r"(?:[a-z_\"' \t]{0,18}(?:[:=]|\bis\b)"
    r"|(?<=[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af])(?:[号號][码碼]?)?[是为為:]?)[ \"']{0,2}[+(]?[0-9]"
    r"|[a-z_\"' \t号號码碼]{0,18}[:=是为為][ \"']{0,2}\Z",
    re.IGNORECASE,
)
# The end of a sentence or a field.
BORDER: Final = lazy_pattern(r"[。|\n;；!！?？]|[.](?=\s)")
_APART: Final = lazy_pattern(f"{BORDER.pattern}|，")
_NUMBER: Final = lazy_pattern(r"[0-9](?:[ .()/-]{0,2}[0-9])*")
_DIGIT: Final = lazy_pattern("[0-9]")
# Where a label does not apply to the following text: "…187; phone", …6666，电话。
_ENDS_SENTENCE: Final = lazy_pattern(
    r"(?:[ ]?(?:numbers?|no\.?)|[号號][码碼]?)?[ )）\"']{0,2}(?:[.;!?。；！？]|\n(?!\s{0,2}[+(]?[0-9])|\s?\Z)",
    re.IGNORECASE,
)
# The label of the value before it follows: "… is my", 。这是我的.
_SAYS_SO: Final = lazy_pattern(
    r"[\s,;.，；。)\"'–—-]{0,3}(?:(?:(?:is|was|that's|that[ ]is|this[ ]is)[ ])?(?:my|our|his|her|their)[ ]"
    r"|[这那這]?就?是(?:[我你他她]们?|家里|公司)?的?)",
    re.IGNORECASE,
)
_PICTURES: Final = frozenset("\u260e\u260f\u2706\U0001f4de\U0001f4f1\U0001f4e0")
# Two words that are one label, while the second alone is another: "soc sec", "Soc. Security".
_SECURITY: Final = frozenset({"sec", "security"})
_SOCIAL: Final = lazy_pattern(r"(?<![a-z])soc(?:ial)?[. ]{1,2}\Z")
# A label followed by a person is a verb that asks for a call: "tag me at ...".
_PRONOUN: Final = lazy_pattern(r"[ ](?:me|us|him|her|them)(?![a-z])")
# "Ring" is a label as a verb, but not as a noun: O-ring, wedding ring.
_RINGS: Final = lazy_pattern(
    r"(?:\A|[^a-z -][ ]{0,2}|(?<![a-z])(?:to|please|pls|can|could|you|just|will|i|we|then|or|and|must|should|may|also"
    r"|back|either|simply|always|never|don't|can't|[a-z]{1,4}'(?:ll|d))[ ])\Z"
)
# Camel case: socialSecurityNumber, TaxpayerSSN. But not iPhone.
_CAMEL: Final = lazy_pattern("[a-z]{2}[A-Z]")
_HUMPED: Final = lazy_pattern("[A-Za-z]*[a-z]{2}[A-Z][A-Za-z]*")
_HUMP: Final = lazy_pattern("[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
# 加V, +v: a WeChat account, which often is a phone number.
_JOINS: Final = frozenset("加我+")
_POSSESSIVE: Final = frozenset("的个我你他她新旧老该此本这那打の")


def has_letters(text: str, start: int, end: int) -> bool:
    """Whether `[start, end)` has a letter or an emoji: a table of numbers has none, and so no label."""
    return _WORDY.search(text, start, end) is not None


def before(text: str, start: int) -> LabelContext:
    """The nearest label to the left of `start`. "Number" yields to the word it belongs to."""
    if not has_letters(text, max(0, start - REACH), start):
        return NOTHING
    cased = text[max(0, start - REACH) : start]
    window = cased.lower()
    if window[-4:].rstrip(" :+")[-1:] in _PICTURES:
        return LabelContext(Label.PHONE, True)
    number = NOTHING
    # A few letters become longer in lower case; then capitals cannot be compared by offset.
    humped = cased if cased != window and len(cased) == len(window) and _CAMEL.search(cased) else None
    for label, end in _labels_from_right(window, humped):
        between = window[end:]
        close = between in _PLAINLY or (len(between) <= 24 and _CONNECTOR.fullmatch(between) is not None)
        if label is not Label.NUMBER:
            return LabelContext(label, close) if close or number is NOTHING else number
        if number is NOTHING:
            number = LabelContext(label, close)
    return number


def _labels_from_right(window: str, humped: str | None) -> Iterator[tuple[Label, int]]:
    """Labels in `window` with their ends, nearest first: it is read backwards, and mostly not to its start.

    `humped` is the window in its original case, if it has camel-case words.
    """
    for token in _TOKEN.finditer(window[::-1]):
        begin, word = len(window) - token.end(), token[0][::-1]
        if word[0] < "\u3040":
            label = _TABLE.get(word)
            if word in _SECURITY and _SOCIAL.search(window, 0, begin):
                label = Label.SSN
            elif label is None and humped is not None:
                label = _camel_case_label(humped[begin : begin + len(word)])
            label = _label_in_context(label, window, begin, begin + len(word))
            if label is not None:
                yield label, begin + len(word)
            continue
        end = len(word)
        while end > 0:
            label, start, end = _last_label(word[:end])
            if label is None:
                break
            if label is Label.NUMBER and start > 0 and word[start - 1] not in _POSSESSIVE:
                label = Label.OTHER  # the number of something unknown
            yield label, begin + end
            end = start


def _camel_case_label(word: str) -> Label | None:
    """The label of a camel-case word: that of its last labelling part; "number" only after another one."""
    humps = [hump.lower() for hump in _HUMP.findall(word)]
    while humps and _TABLE.get(humps[-1]) is Label.NUMBER:
        humps.pop()
    return next((label for i in range(len(humps)) if (label := _TABLE.get("".join(humps[i:])))), None)


def _label_in_context(label: Label | None, window: str, begin: int, end: int) -> Label | None:
    """The label of an English word in its context: some words are labels only without certain neighbours."""
    if label is Label.OTHER and _PRONOUN.match(window, end):
        return Label.CALL
    if label is Label.OTHER and window[begin:end] == "time" and window.endswith("any ", 0, begin):
        return None
    if label is Label.CALL and window[begin:end] == "ring":
        return label if _RINGS.search(window, max(0, begin - 12), begin) else None
    if label is not Label.VERSION:
        return label
    before = window[max(0, begin - 4) : begin]
    if window[begin:end] == "v" and before[-1:] in _JOINS:
        return Label.JOIN
    return None if before[-1:] == "." and before[-2:-1].isalnum() and before != "asp." else label


def after(text: str, end: int, *, shared: bool = False) -> LabelContext:
    """The first label to the right of `end`; close when it follows at once, as in `555-0187 (fax)`.

    It is also close in "… is my fax". A label in another sentence or with its own number mostly does not apply to this
    one, unless it may be `shared`.
    """
    if not has_letters(text, end, end + REACH_AFTER):
        return NOTHING
    window = text[end : end + REACH_AFTER].lower()
    for token in _TOKEN.finditer(window):
        label, length = _first_label(token[0])
        if label is not None:
            at = end + token.start()
            said = _is_confirmed_after(text, end, at, at + length)
            if not shared and _labels_another_number(text, end, at, at + length, said=said):
                return NOTHING
            return LabelContext(label, said or token.start() < CLOSE_AFTER)
    return NOTHING


def _is_confirmed_after(text: str, end: int, at: int, stop: int) -> bool:
    said = _SAYS_SO.match(text, end)
    return said is not None and at <= said.end() < stop


def _labels_another_number(text: str, end: int, at: int, stop: int, *, said: bool) -> bool:
    """Whether the label at `[at, stop)` does not apply to the value that ends at `end`.

    It precedes a number of another format, or it is in another sentence or field that continues after it.
    """
    heads = _HEADS_ANOTHER.match(text, stop)
    if heads is not None:
        return not _has_same_format(text, end, heads.end() - 1)
    return not said and _APART.search(text, end, at) is not None and not _ENDS_SENTENCE.match(text, stop)


def _has_same_format(text: str, end: int, start: int) -> bool:
    """Whether the number from `start` has the format of the one that ends at `end`: 555-0187 fax: 555-0188."""
    number = _NUMBER.match(text, start)
    if number is None:
        return False
    before = text[max(0, end - len(number[0])) : end]
    return _DIGIT.sub("0", before) == _DIGIT.sub("0", number[0])


def labels_left(text: str, start: int) -> frozenset[Label]:
    """Every label within reach to the left of `start`."""
    return _all_labels(text[max(0, start - REACH) : start])


def labels_right(text: str, end: int) -> frozenset[Label]:
    """Every label within reach to the right of `end`."""
    return _all_labels(text[end : end + REACH])


def _all_labels(window: str) -> frozenset[Label]:
    found = {label for token in _TOKEN.finditer(window.lower()) for label in _labels_in_token(token[0])}
    if _CAMEL.search(window):
        found.update(label for word in _HUMPED.findall(window) if (label := _camel_case_label(word)) is not None)
    return frozenset(found)


def _last_label(token: str) -> tuple[Label | None, int, int]:
    """The last label inside `token`, with its start and end."""
    found = _TABLE.get(token)
    if found is not None or token[0] < "\u3040":
        return found, 0, len(token)
    for end in range(len(token), 0, -1):
        if token[end - 1] not in _LAST:
            continue
        for start in range(max(0, end - _LONGEST), end):
            found = _TABLE.get(token[start:end])
            if found is not None:
                return found, start, end
    return None, 0, 0


def _first_label(token: str) -> tuple[Label | None, int]:
    """The first label inside `token`, with its end."""
    found = _TABLE.get(token)
    if found is not None or token[0] < "\u3040":
        return found, len(token)
    for start in range(len(token)):
        if token[start] not in _FIRST:
            continue
        for end in range(min(len(token), start + _LONGEST), start, -1):
            found = _TABLE.get(token[start:end])
            if found is not None:
                return found, end
    return None, 0


def _labels_in_token(token: str) -> set[Label]:
    found = _TABLE.get(token)
    if found is not None:
        return {found}
    if token[0] < "\u3040":
        return set()
    starts = (i for i, char in enumerate(token) if char in _FIRST)
    pieces = (token[i:j] for i in starts for j in range(i + 1, min(len(token), i + _LONGEST) + 1))
    return {_TABLE[piece] for piece in pieces if piece in _TABLE}
