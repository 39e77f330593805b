"""Byte-level BPE with the pre-tokenizer that GGUF files call "qwen2". Pure Python, deterministic.

The token texts are in GPT-2's printable-byte alphabet, as tokenizer.ggml.tokens wants them. Ids:
the 256 bytes, then one token per merge in the order learnt, then the three control tokens.
"""
import collections
import re

SPECIALS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")

# Qwen2's expression. Python's re has no \p{L} and \p{N}: [^\W\d_] and \d say the same for the text
# that make_data.py writes (no combining marks, no numbers other than decimal digits).
PRE_TOKENS = re.compile(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
    r"|(?:[^\r\n\w]|_)?[^\W\d_]+"
    r"|\d"
    r"| ?(?:[^\s\w]|_)+[\r\n]*"
    r"|\s*[\r\n]+"
    r"|\s+(?!\S)"
    r"|\s+")


def byte_alphabet():
    """GPT-2's map from a byte to a printable character."""
    printable = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    out, extra = {b: chr(b) for b in printable}, 0
    for b in range(256):
        if b not in out:
            out[b] = chr(256 + extra)
            extra += 1
    return out


BYTES = byte_alphabet()


def to_symbols(text):
    return "".join(BYTES[b] for b in text.encode())


def learn(texts, n_vocab):
    """Learns n_vocab - 256 - 3 merges from an iterable of texts; returns them as pairs of texts."""
    counts = collections.Counter()
    for text in texts:
        counts.update(PRE_TOKENS.findall(text))
    # Sorted, so that ties do not depend on the order of the texts.
    words = [(list(to_symbols(word)), n) for word, n in sorted(counts.items())]
    pairs, where = collections.Counter(), collections.defaultdict(set)
    for i, (symbols, n) in enumerate(words):
        for pair in zip(symbols, symbols[1:]):
            pairs[pair] += n
            where[pair].add(i)
    merges = []
    while len(merges) < n_vocab - 256 - len(SPECIALS):
        best = max(pairs, key=lambda pair: (pairs[pair], pair), default=None)
        if best is None or pairs[best] < 2:
            raise ValueError(f"only {len(merges)} merges can be learnt from this text: ask for a "
                             f"vocabulary of at most {256 + len(merges) + len(SPECIALS)}")
        merges.append(best)
        for i in sorted(where.pop(best)):
            symbols, n = words[i]
            for pair in zip(symbols, symbols[1:]):
                pairs[pair] -= n
                if pairs[pair] <= 0:
                    del pairs[pair]
            symbols[:] = _merge(symbols, best)
            for pair in zip(symbols, symbols[1:]):
                pairs[pair] += n
                where[pair].add(i)
        pairs.pop(best, None)
    return merges


def _merge(symbols, pair):
    out, i = [], 0
    while i < len(symbols):
        if i + 1 < len(symbols) and symbols[i] == pair[0] and symbols[i + 1] == pair[1]:
            out.append(pair[0] + pair[1])
            i += 2
        else:
            out.append(symbols[i])
            i += 1
    return out


class Tokenizer:
    def __init__(self, merges):
        self.merges = [tuple(pair) for pair in merges]
        self.tokens = [BYTES[b] for b in range(256)] + [a + b for a, b in self.merges]
        self.tokens += SPECIALS
        if len(set(self.tokens)) != len(self.tokens):
            raise ValueError("two merges make the same token")
        self.ids = {token: i for i, token in enumerate(self.tokens)}
        self.ranks = {pair: i for i, pair in enumerate(self.merges)}
        self.end_of_text, self.im_start, self.im_end = (self.ids[s] for s in SPECIALS)
        self._cache = {}
        self._bytes = {c: b for b, c in BYTES.items()}

    def encode(self, text):
        """Ids of plain text; special tokens are not looked for."""
        out = []
        for word in PRE_TOKENS.findall(text):
            ids = self._cache.get(word)
            if ids is None:
                ids = self._cache[word] = self._encode_word(word)
            out.extend(ids)
        return out

    def _encode_word(self, word):
        symbols = list(to_symbols(word))
        while len(symbols) > 1:
            rank, best = min((self.ranks.get(pair, len(self.ranks)), pair)
                             for pair in zip(symbols, symbols[1:]))
            if rank == len(self.ranks):
                break
            symbols = _merge(symbols, best)
        return [self.ids[symbol] for symbol in symbols]

    def decode(self, ids):
        raw = bytes(self._bytes[c] for i in ids if i < self.end_of_text for c in self.tokens[i])
        return raw.decode(errors="replace")
