"""The Transformer of `--model transformer`: the base model of Vaswani et al., without its embeddings."""

from __future__ import annotations

from typing import Any

# "Attention Is All You Need" (NeurIPS 2017), table 3, "base". The vocabulary is that of the profile of the same name.
BLOCKS, WIDTH, HEADS, INNER, VOCABULARY = 6, 512, 8, 2048, 31_030
# Tokens of a sample: few, so that a step is short where a processor computes it.
LENGTH = 32


def layers_of(keras: Any) -> Any:
    """A Keras model from (batch, LENGTH, WIDTH) to logits (batch, LENGTH, VOCABULARY).

    Its input are tokens' embeddings, for the bench draws floats. The decoder gets the same ones as the encoder.
    """
    layers = keras.layers

    def attend(hidden: Any, source: Any, causal: bool) -> Any:
        normal = layers.LayerNormalization()(hidden)
        source = normal if source is None else source
        attention = layers.MultiHeadAttention(HEADS, WIDTH // HEADS)
        return layers.Add()([hidden, attention(normal, source, use_causal_mask=causal)])

    def feed_forward(hidden: Any) -> Any:
        inner = layers.Dense(INNER, activation="relu")(layers.LayerNormalization()(hidden))
        return layers.Add()([hidden, layers.Dense(WIDTH)(inner)])

    inputs = layers.Input((LENGTH, WIDTH))
    memory = inputs
    for _ in range(BLOCKS):
        memory = feed_forward(attend(memory, None, causal=False))
    memory = layers.LayerNormalization()(memory)
    hidden = inputs
    for _ in range(BLOCKS):
        hidden = feed_forward(attend(attend(hidden, None, causal=True), memory, causal=False))
    return keras.Model(inputs, layers.Dense(VOCABULARY)(layers.LayerNormalization()(hidden)))
