"""Finding what was said: the lexical index that search without a language model stands on."""

from tenuto.recall.lexical import Hit, LexicalIndex, split_sentences, terms

__all__ = ["Hit", "LexicalIndex", "split_sentences", "terms"]
