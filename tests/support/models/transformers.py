"""Transformers and their kin as ONNX models, generated: random weights from a fixed seed."""

from pathlib import Path

import numpy as np

from support.models.sequences import SequenceNetwork


class Transformer(SequenceNetwork):
    """Layers of transformers; normalizations come before what they normalize for."""

    def conv(self, x: str, inputs: int, outputs: int, kernel: int, **options: object) -> str:
        """Add a square convolution with bias; depthwise where group says so."""
        spread = (inputs // int(str(options.get("group", 1))) * kernel**2) ** -0.5
        weight = self.random.normal(0, spread, (outputs, round(spread**-2) // kernel**2, kernel, kernel))
        weights = self.constant(weight.astype(np.float32)), self.weight(outputs, scale=0.1)
        return self.op("Conv", x, *weights, kernel_shape=[kernel, kernel], **options)

    def heads(
        self, x: str, steps: int, size: int, heads: int, past: tuple[str, str] | None = None
    ) -> tuple[str, str, str]:
        """Add attention to *steps* tokens after the *past* keys and values; return also those joined."""
        joined = self.reshape(self.dense(x, size, 3 * size), 1, steps, 3, heads, size // heads)
        parts = self.op("Transpose", joined, perm=[2, 0, 3, 1, 4])
        q, k, v = (self.op("Gather", parts, self.constant(np.array(part)), axis=0) for part in range(3))
        if past:
            k, v = (self.op("Concat", old, new, axis=2) for old, new in zip(past, (k, v), strict=True))
        scores = self.op("MatMul", q, self.op("Transpose", k, perm=[0, 1, 3, 2]))
        shares = self.op("Softmax", self.op("Mul", scores, self.scalar((size // heads) ** -0.5)), axis=-1)
        moved = self.op("Transpose", self.op("MatMul", shares, v), perm=[0, 2, 1, 3])
        return self.dense(self.reshape(moved, 1, steps, size), size, size), k, v

    def gelu_tanh(self, x: str) -> str:
        cube = self.op("Mul", self.op("Pow", x, self.scalar(3)), self.scalar(0.044715))
        inner = self.op("Mul", self.op("Add", x, cube), self.scalar((2 / np.pi) ** 0.5))
        shares = self.op("Add", self.op("Tanh", inner), self.scalar(1))
        return self.op("Mul", self.op("Mul", x, self.scalar(0.5)), shares)


def vit(path: Path, layers: int = 6, size: int = 384, heads: int = 6, image: int = 224) -> Path:
    """Build ViT-S/16 of half the depth, its normalizations decomposed; 197 tokens of an image."""
    net, patches = Transformer(), (image // 16) ** 2
    x = net.conv("x", 3, size, 16, strides=[16, 16])
    x = net.op("Transpose", net.reshape(x, 1, size, patches), perm=[0, 2, 1])
    x = net.op("Concat", net.weight(1, 1, size, scale=1), x, axis=1)
    x = net.op("Add", x, net.weight(1, patches + 1, size, scale=1))
    for _ in range(layers):
        normal = net.layer_norm(x, size, decomposed=True)
        x = net.op("Add", x, net.heads(normal, patches + 1, size, heads)[0])
        inner = net.gelu(net.dense(net.layer_norm(x, size, decomposed=True), size, 4 * size))
        x = net.op("Add", x, net.dense(inner, 4 * size, size))
    first = net.op("Gather", net.layer_norm(x, size), net.constant(np.array(0)), axis=1)
    return net.save(path, {"x": (1, 3, image, image)}, net.dense(first, size, 1000), (1, 1000))


def gpt2_step(
    path: Path, layers: int = 4, size: int = 768, heads: int = 12, past: int = 127, words: int = 8000
) -> Path:
    """Build the step of GPT-2's layers for one token, with the keys and values of *past* ones."""
    net, cache = Transformer(), (1, heads, past, size // heads)
    x = net.op("Gather", net.weight(words, size, scale=1), "ids")
    inputs: dict[str, tuple[int, ...]] = {"ids": (1, 1)}
    outputs: dict[str, tuple[int, ...]] = {}
    for layer in range(layers):
        names = f"k{layer}", f"v{layer}"
        y, *state = net.heads(net.layer_norm(x, size), 1, size, heads, names)
        inputs |= dict.fromkeys(names, cache)
        outputs |= dict.fromkeys(state, (1, heads, past + 1, size // heads))
        x = net.op("Add", x, y)
        inner = net.gelu_tanh(net.dense(net.layer_norm(x, size), size, 4 * size))
        x = net.op("Add", x, net.dense(inner, 4 * size, size))
    logits = net.op("MatMul", net.layer_norm(x, size), net.weight(size, words))
    return net.save(path, inputs, logits, (1, 1, words), outputs)


def convnext(path: Path, depths: tuple[int, ...] = (1, 1, 3, 1), first: int = 96, image: int = 224) -> Path:
    """Build ConvNeXt-T of a third of the depth: 7 × 7 depthwise convolutions, the rest channels-last."""
    net, x, size = Transformer(), "x", first

    def last(x: str, axes: tuple[int, ...] = (0, 2, 3, 1)) -> str:
        return net.op("Transpose", x, perm=list(axes))

    def first_again(x: str) -> str:
        return last(x, (0, 3, 1, 2))

    for stage, depth in enumerate(depths):
        size = first << stage
        if stage:
            x = net.conv(first_again(net.layer_norm(last(x), size // 2)), size // 2, size, 2, strides=[2, 2])
        else:
            x = net.conv(x, 3, size, 4, strides=[4, 4])
            x = first_again(net.layer_norm(last(x), size))
        for _ in range(depth):
            y = last(net.conv(x, size, size, 7, group=size, pads=[3] * 4))
            y = net.gelu(net.dense(net.layer_norm(y, size), size, 4 * size))
            y = net.op("Mul", net.dense(y, 4 * size, size), net.weight(size, scale=1))
            x = net.op("Add", x, first_again(y))
    pooled = net.op("ReduceMean", x, axes=[2, 3], keepdims=0)
    output = net.dense(net.layer_norm(pooled, size), size, 1000)
    return net.save(path, {"x": (1, 3, image, image)}, output, (1, 1000))
