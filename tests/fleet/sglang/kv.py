"""The arithmetic that stands for a model: KV bytes from a prompt, tokens from KV bytes."""

import hashlib

KV_BYTES = 256 * 1024
CHUNKS = 4
WORDS = "the cache moved and every token that depends on it came out right here again".split()


def prefill(prompt):
    """The KV cache of a prompt."""
    seed = hashlib.sha256(prompt.encode()).digest()
    return seed * (KV_BYTES // len(seed))


def token(kv, position):
    """The token at a position; it depends on the first and last KV bytes, so a cut transfer gives a wrong one."""
    digest = hashlib.sha256(kv[:32] + kv[-32:] + len(kv).to_bytes(4, "big") + position.to_bytes(4, "big")).digest()
    return digest[0] % len(WORDS)


def text(tokens):
    return " ".join(WORDS[number] for number in tokens)


def answer(prompt, count):
    """What the fleet must answer."""
    kv = prefill(prompt)
    return text([token(kv, position) for position in range(count)])
