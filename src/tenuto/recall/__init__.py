"""Finding what was said: the lexical index that search without a language model stands on."""

from tenuto.recall.lexical import Hit, LexicalIndex, readable_words, split_sentences, terms

__all__ = ["Hit", "LexicalIndex", "readable_words", "split_sentences", "terms"]
