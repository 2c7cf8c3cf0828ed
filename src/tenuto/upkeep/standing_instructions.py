"""Standing instructions: how a user wants to be answered from now on, told by the nearness to examples.

A sentence is one if it is near one of the examples in meaning, and not as near to what only sounds like it: a request
for now, a fact about the user, a remark on an answer. The encoder that runs here reads sixteen languages; its scale is
the one that the thresholds were set on, so they serve no other. A preference stands in every prompt: what is doubtful
is none.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from tenuto.llm.embedding.local import LocalEmbedder
from tenuto.model import Scope
from tenuto.recall.embedding import CachedEmbedder, Vector
from tenuto.upkeep.quotes import possible_instructions

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# The cosine to the nearest example, and how far it is above half of that to the nearest other sentence.
_NEAR: Final = 0.48
_ABOVE: Final = 0.32
_log = logging.getLogger(__name__)


class InstructionFinder:
    """Finds standing instructions by the local encoder; none without it."""

    def __init__(self, embedder: CachedEmbedder | None) -> None:
        self._embedder = embedder if embedder is not None and embedder.name == LocalEmbedder.name else None
        self._known: NDArray[np.float32] | None = None

    def may_find(self, text: str) -> bool:
        """Whether a message is worth a look."""
        return self._embedder is not None and bool(possible_instructions(text))

    async def find(self, scope: Scope, texts: Sequence[str]) -> list[list[str]]:
        """The sentences of each message that are standing instructions."""
        found = [possible_instructions(text) if self._embedder is not None else [] for text in texts]
        sentences = list(dict.fromkeys(one for each in found for one in each))
        if self._embedder is None or not sentences:
            return [[] for _ in texts]
        # Kept for their memories: these vectors are not computed again.
        vectors = await self._embedder.embed_later(scope, sentences)
        known = await self._load_known(self._embedder) if vectors is not None else None
        if vectors is None or known is None or len(vectors[0]) != known.shape[1]:
            # Vectors of another length are those of another model under the same name.
            self._known = None
            _log.warning("%s messages were read without looking for standing instructions", len(texts))
            return [[] for _ in texts]
        chosen = {one for one, near in zip(sentences, _are_near(_unit(vectors), known), strict=True) if near}
        return [[one for one in each if one in chosen] for each in found]

    async def _load_known(self, embedder: CachedEmbedder) -> NDArray[np.float32] | None:
        if self._known is None:
            vectors = await embedder.embed_patiently([*_EXAMPLES, *_OTHERS])
            self._known = _unit(vectors) if vectors is not None else None
        return self._known


def _are_near(given: NDArray[np.float32], known: NDArray[np.float32]) -> list[bool]:
    cosines = given @ known.T
    example = cosines[:, : len(_EXAMPLES)].max(axis=1)
    other = cosines[:, len(_EXAMPLES) :].max(axis=1)
    return [bool(one) for one in (example >= _NEAR) & (example - other / 2 >= _ABOVE)]


def _unit(vectors: Sequence[Vector]) -> NDArray[np.float32]:
    # It takes a tenth of a second to load; the encoder needs it anyway.
    import numpy as np

    rows = np.asarray(vectors, dtype=np.float32)
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows / np.where(lengths > 0, lengths, 1), dtype=np.float32)


_EXAMPLES: Final = (
    "Always answer me in Italian.",
    "From now on, write to me in English only.",
    "From now on reply in German.",
    "Keep all your answers short and simple.",
    "Don't use emojis or exclamation marks when you write to me.",
    "Whenever you give me a date, write day, month and year.",
    "Always write dates and times in the ISO format.",
    "Always use kilometres and degrees Celsius in your answers.",
    "Always give amounts in dollars.",
    "I prefer detailed explanations with examples from you.",
    "I like answers that come straight to the point.",
    "From now on, call me Captain.",
    "Tell me the answer first and explain it afterwards.",
    "Explain things as you would to a child.",
    "Never thank me or say sorry in your answers.",
    "Ab jetzt nur noch ausführliche Antworten, bitte ohne Emojis.",
    "Use numbered lists and tables in your answers.",
    "Be polite and formal when you talk to me.",
    "Always name the sources and links for what you tell me.",
    "When I ask about code, always show a commented example.",
    "Avoid difficult words when you explain something to me.",
    "Don't ask me questions at the end of your answers.",
    "Use American spelling in your answers.",
    "以后请用英语回答我。",
    "回答我的时候请简短，不要用敬语。",
    "每次都用列表的格式回答。",
    "以后叫我船长。",
    "Bitte antworte mir immer kurz und auf Englisch.",
    "Benutze keine Fremdwörter, wenn du mir schreibst.",
    "Réponds-moi toujours brièvement et sans jargon.",
)
_OTHERS: Final = (
    "I want my money back, please open a case.",
    "Please send me the documents.",
    "Can you help me with my problem?",
    "Write a short letter in Italian for me.",
    "Translate this text into English.",
    "How do you say this sentence in German?",
    "Make this text shorter and use a list.",
    "Explain this to me in detail, with an example.",
    "Just show me the answer now.",
    "Stop asking and give me the result.",
    "Give me an example with code.",
    "Thanks, that was a clear and detailed answer.",
    "It took you too long to answer.",
    "I live in Paris with my family.",
    "I always write my reports in the evening.",
    "From now on I get up early every day.",
    "I prefer coffee in the morning.",
    "I don't like it when people at work use emojis.",
    "I am learning Italian and speak English at work.",
    "I always answer my boss at once.",
    "My boss always wants a list of all dates.",
    "My friends call me Captain.",
    "Call my sister tomorrow.",
    "My answers in the exam were too long.",
    "I want to write a book with many examples.",
    "They answered me in English.",
    "To answer your question.",
    "I am happy with how I made my points.",
    "Give me a longer list with more examples.",
    "Don't be afraid to use humour.",
    "You will find the answer.",
    "Answers to the questions.",
    "I am reading an article about emojis.",
    "Thank you for your kind words.",
    "Thanks for always helping me.",
    "You have all that you need now, just do it.",
    "今天是我的生日，我很开心。",
    "I did not get an answer from anybody.",
    "Find sources for my essay quickly.",
    "Stop asking me the same questions again.",
    "Make sure that your last answer is clear.",
    "Please contact me if you have any questions.",
    "I was just writing to you.",
    "请把文件发给我。",
    "把这段文字翻译成英语。",
    "请解释一下这个问题。",
    "我住在北京，在学校工作。",
    "我每天用英语写报告。",
    "老师让我们用英语回答。",
    "Ich lerne Englisch und wohne in Wien.",
    "Bitte schicken Sie mir die Unterlagen.",
)
