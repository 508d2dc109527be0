"""Writes tests/samples/decode_values.h: samples/decode.tape at its small sizes by NumPy in float64, every token by a
recomputation of the whole text, without a cache. Weights are drawn here and rounded to bf16 as the tape declares them.
"""
import pathlib

import numpy as np

import initial_values
from golden import to_bf16
from philox import words
from sampling import chosen

VOCAB, D, LAYERS, HEADS, GROUPS, F, CACHE, PROMPT, END, TOP_K = 64, 32, 2, 4, 2, 48, 32, 8, 51, 40
STD, C, NEW = 0.25, D // HEADS, CACHE - PROMPT
OUT = pathlib.Path(__file__).resolve().parents[1] / "samples" / "decode_values.h"


def drawn(name, seed, *shape):
    values = np.array(initial_values.normal(seed, name, int(np.prod(shape)), STD), dtype=np.float32)
    return to_bf16(values).astype(np.float64).reshape(shape)


TABLE, HEAD = drawn("table", 1, VOCAB, D), drawn("head", 2, D, VOCAB)
BLOCKS = [{"qkv": drawn(f"wqkv{i}", 10 * i + 1, D, (HEADS + 2 * GROUPS) * C),
           "o": drawn(f"wo{i}", 10 * i + 2, HEADS * C, D),
           "gate_up": drawn(f"gate_up{i}", 10 * i + 3, D, 2 * F), "down": drawn(f"down{i}", 10 * i + 4, F, D)}
          for i in range(1, LAYERS + 1)]


SCALE = np.float64(np.float32(1 / np.sqrt(C)))  # in the type that attention computes in


def rms_norm(x):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + np.float64(np.float32(1e-6)))


def rope(x):  # [heads, T, C]
    angle = np.arange(x.shape[1])[:, None] * 10000.0 ** (-np.arange(C // 2) * 2.0 / C)
    low, high = x[..., :C // 2], x[..., C // 2:]
    return np.concatenate([low * np.cos(angle) - high * np.sin(angle), high * np.cos(angle) + low * np.sin(angle)], -1)


def network(tokens):
    """Logits behind the last token; keys and values of every layer [GROUPS, T, C]."""
    h, caches = TABLE[tokens], []
    for w in BLOCKS:
        parts = (rms_norm(h) @ w["qkv"]).reshape(len(tokens), -1, C).transpose(1, 0, 2)
        q, k, v = rope(parts[:HEADS]), rope(parts[HEADS:HEADS + GROUPS]), parts[HEADS + GROUPS:]
        caches.append((k, v))
        heads = []
        for head in range(HEADS):
            group = head // (HEADS // GROUPS)
            score = q[head] @ k[group].T * SCALE
            score[np.triu_indices(len(tokens), 1)] = -np.inf
            weight = np.exp(score - score.max(-1, keepdims=True))
            heads.append(weight / weight.sum(-1, keepdims=True) @ v[group])
        h = h + np.concatenate(heads, -1) @ w["o"]
        gate, up = np.split(rms_norm(h) @ w["gate_up"], 2, -1)
        h = h + gate / (1 + np.exp(-gate)) * up @ w["down"]
    return rms_norm(h[-1]) @ HEAD, caches


def written(prompt, choose, end, most):
    """What is written, the smallest distance of a choice from another one, and the text with prompt."""
    text, margin = list(prompt), np.inf
    while True:
        token, distance = choose(network(text)[0])
        margin = min(margin, distance)
        if token == end or len(text) == len(prompt) + most or len(text) == CACHE:
            return text[len(prompt):], margin, text
        text.append(token)


def likeliest(logits):
    first, second = np.sort(logits)[::-1][:2]
    return int(np.argmax(logits)), first - second


class Dice:
    def __init__(self, seed, temperature):
        self.seed, self.temperature, self.draws = seed, temperature, 0

    def __call__(self, logits):
        u = words(self.seed, self.draws, 1)[0] * 2.0 ** -32
        self.draws += 1
        return chosen(logits / self.temperature, u, 1, TOP_K, 1)


def row(kind, name, values):
    values = np.asarray(values).reshape(-1)
    text = [str(int(v)) if kind == "int" else repr(float(v)) for v in values]
    lines, line = [], f"inline constexpr {kind} {name}[] = {{"
    for i, word in enumerate(text):
        word += "};" if i + 1 == len(text) else ","
        if len(line) + len(word) + 1 > 120:
            lines, line = lines + [line], "   "
        line += ("" if line.endswith("{") else " ") + word
    return lines + [line]


if __name__ == "__main__":
    prompt = [3, 1, 4, 1, 5, 9, 2, 6]
    lines = ["// Written by tests/oracles/decode_sample.py.", "#pragma once", "namespace tape::test::decode_values {"]
    lines += row("int", "kPrompt", prompt)
    lines += row("double", "kPromptLogits", network(prompt)[0])
    texts = [("Ended", prompt, likeliest, END), ("Full", prompt, likeliest, -1), ("Short", prompt[:3], likeliest, -1),
             ("Sampled", prompt, Dice(1, np.float32(0.8)), -1)]
    for name, given, choose, end in texts:
        tokens, margin, text = written(given, choose, end, NEW)
        print(name, tokens, margin)
        assert margin > 1e-6, margin
        lines += row("int", f"k{name}", tokens)
        logits, caches = network(text)
        if name in ("Ended", "Short"):
            lines += row("double", f"k{name}Logits", logits)
        if name == "Ended":
            lines += row("double", "kKeys", caches[1][0]) + row("double", "kValues", caches[1][1])
    lines += ["}  // namespace tape::test::decode_values", ""]
    OUT.write_text("\n".join(lines))
