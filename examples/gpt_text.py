"""The training text for `gpt.py`: Python's own reference, which every Python includes.

Bytes are the tokens. The last tenth is held out; repeated paragraphs are dropped first, so that
training sees none of it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pydoc_data.topics import topics

import numpy as np


@dataclass(frozen=True)
class Corpus:
    """Bytes for training and for validation."""

    train: np.ndarray  # uint8[n]
    held_out: np.ndarray  # uint8[m]

    @property
    def size(self) -> int:
        return len(self.train) + len(self.held_out)


def read_corpus() -> Corpus:
    paragraphs = (p for topic in sorted(topics) for p in topics[topic].split("\n\n"))
    text = "\n\n".join(dict.fromkeys(p.rstrip() for p in paragraphs))
    data = np.frombuffer(text.encode(), np.uint8)
    cut = len(data) * 9 // 10
    return Corpus(data[:cut], data[cut:])


def training_windows(corpus: Corpus, step: int, batch: int, context: int, seed: int) -> np.ndarray:
    """The windows of one step, int32[batch, context + 1]: a function of seed and step only."""
    starts = np.random.default_rng([seed, step]).integers(
        0, len(corpus.train) - context, size=batch
    )
    return _windows(corpus.train, starts, context)


def validation_windows(corpus: Corpus, batch: int, context: int) -> list[np.ndarray]:
    """Batches of windows that cover the held-out text once, as evenly as full batches allow."""
    last = len(corpus.held_out) - context - 1
    batches = max(1, last // (batch * context))
    starts = np.linspace(0, last, batches * batch).astype(int)
    return [_windows(corpus.held_out, part, context) for part in np.split(starts, batches)]


def _windows(data: np.ndarray, starts: np.ndarray, context: int) -> np.ndarray:
    return data[starts[:, None] + np.arange(context + 1)].astype(np.int32)


def unigram_entropy(data: np.ndarray) -> float:
    """Nats per byte that a model knowing only byte frequencies would need for this very text."""
    counts = np.bincount(data, minlength=256)
    return _entropy(counts)


def bigram_entropy(data: np.ndarray) -> float:
    """Nats per byte given the byte before, with the frequencies of this very text."""
    pairs = np.bincount(data[:-1].astype(int) * 256 + data[1:], minlength=65536)
    return _entropy(pairs) - _entropy(np.bincount(data[:-1], minlength=256))


def _entropy(counts: np.ndarray) -> float:
    share = counts[counts > 0] / counts.sum()
    return -math.fsum(share * np.log(share))


def to_text(tokens: np.ndarray) -> str:
    return bytes(tokens.astype(np.uint8).tolist()).decode("utf-8", errors="replace")
