"""Networks for pictures: the layers of each, the table of them by name, and the file of each in the cache.

Each function of layers adds them to a :class:`Network` and returns the output's name. Batch normalizations
are nodes of their own, as frameworks export them for training; the importer folds them.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from adt.compiler.networks.builder import Network
from adt.errors import ModelError
from adt.host import cache
from adt.options.option import did_you_mean

log = logging.getLogger("adt")

REVISION = 1  # counts up when the bytes of some network's file change; a test knows their sha256
UNTRAINED = "-untrained"  # in the name of each file, which goes to the packages made of it
SIZES = {"inception-v3": 299, "unet": 256}
SIDE = 224
"""Height and width of pictures, unless :data:`SIZES` has others."""
FIXED = {"vgg-11", "vgg-13", "vgg-16", "vgg-19"}  # networks for pictures of one size

RESIDUAL = 0.3  # factor of the sum, so that the numbers of half precision hold it after fifty blocks


def resnet(net: Network, blocks: Sequence[int], *, bottleneck: bool = False) -> str:
    """Build ResNet (He and others, 2015); of a bottleneck the 3 × 3 convolution has the stride."""
    x = net.max_pool(net.relu(net.conv("x", 64, 7, 2)), 3, 2)
    for stage, repeat in enumerate(blocks):
        width = 64 << stage
        out = 4 * width if bottleneck else width
        for step in range(repeat):
            stride = 2 if stage and not step else 1
            shortcut = x if stride == 1 and net.channels[x] == out else net.conv(x, out, 1, stride)
            if bottleneck:
                y = net.relu(net.conv(net.relu(net.conv(x, width, 1)), width, 3, stride))
                y = net.conv(y, out, 1, gain=RESIDUAL)
            else:
                y = net.conv(net.relu(net.conv(x, width, 3, stride)), out, gain=RESIDUAL)
            x = net.relu(net.add(y, shortcut))
    return net.classifier(x)


def vgg(net: Network, blocks: Sequence[int]) -> str:
    """Build VGG (Simonyan and Zisserman, 2014) without batch normalisation; pictures of 224 × 224 only."""
    x = "x"
    for repeat, out in zip(blocks, (64, 128, 256, 512, 512), strict=True):
        for _ in range(repeat):
            x = net.relu(net.conv(x, out, norm=False))
        x = net.max_pool(x, 2, 2, padded=False)
    x = net.op("Flatten", [x], 512 * 7 * 7)
    for _ in range(2):
        x = net.relu(net.dense(x, 4096))
    return net.dense(x, 1000)


def mobilenet_v1(net: Network) -> str:
    """Build MobileNet v1 (Howard and others, 2017)."""
    x = net.relu(net.conv("x", 32, 3, 2))
    for out, stride in (
        (64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *((512, 1),) * 5, (1024, 2), (1024, 1),
    ):  # fmt: skip
        x = net.relu(net.conv(x, net.channels[x], 3, stride, groups=net.channels[x]))
        x = net.relu(net.conv(x, out, 1))
    return net.classifier(x)


def mobilenet_v2(net: Network) -> str:
    """Build MobileNet v2 (Sandler and others, 2018)."""
    x = net.relu6(net.conv("x", 32, 3, 2))
    for expand, out, repeat, first in (
        (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2),
        (6, 320, 1, 1),
    ):  # fmt: skip
        for stride in (first, *(1,) * (repeat - 1)):
            hidden = net.channels[x] * expand
            y = net.relu6(net.conv(x, hidden, 1)) if expand > 1 else x
            y = net.relu6(net.conv(y, hidden, 3, stride, groups=hidden))
            y = net.conv(y, out, 1)
            x = net.add(x, y) if stride == 1 and net.channels[x] == out else y
    return net.classifier(net.relu6(net.conv(x, 1280, 1)))


def mobilenet_v3(net: Network) -> str:
    """Build the large MobileNet v3 (Howard and others, 2019)."""
    x = net.hard_swish(net.conv("x", 16, 3, 2))
    # kernel, hidden channels, output channels, squeeze-and-excite, hard-swish, stride
    for kernel, hidden, out, excite, swish, stride in (
        (3, 16, 16, 0, 0, 1), (3, 64, 24, 0, 0, 2), (3, 72, 24, 0, 0, 1), (5, 72, 40, 24, 0, 2),
        (5, 120, 40, 32, 0, 1), (5, 120, 40, 32, 0, 1), (3, 240, 80, 0, 1, 2), (3, 200, 80, 0, 1, 1),
        (3, 184, 80, 0, 1, 1), (3, 184, 80, 0, 1, 1), (3, 480, 112, 120, 1, 1), (3, 672, 112, 168, 1, 1),
        (5, 672, 160, 168, 1, 2), (5, 960, 160, 240, 1, 1), (5, 960, 160, 240, 1, 1),
    ):  # fmt: skip
        activation = net.hard_swish if swish else net.relu
        y = activation(net.conv(x, hidden, 1)) if hidden != net.channels[x] else x
        y = activation(net.conv(y, hidden, kernel, stride, groups=hidden))
        y = net.conv(net.squeeze_excite(y, excite) if excite else y, out, 1)
        x = net.add(x, y) if stride == 1 and net.channels[x] == out else y
    means = net.means(net.hard_swish(net.conv(x, 960, 1)))
    return net.dense(net.hard_swish(net.dense(means, 1280)), 1000)


def efficientnet(net: Network) -> str:
    """Build EfficientNet B0 (Tan and Le, 2019)."""
    x = net.silu(net.conv("x", 32, 3, 2))
    for expand, out, repeat, first, kernel in (
        (1, 16, 1, 1, 3), (6, 24, 2, 2, 3), (6, 40, 2, 2, 5), (6, 80, 3, 2, 3),
        (6, 112, 3, 1, 5), (6, 192, 4, 2, 5), (6, 320, 1, 1, 3),
    ):  # fmt: skip
        for stride in (first, *(1,) * (repeat - 1)):
            inputs = net.channels[x]
            y = net.silu(net.conv(x, inputs * expand, 1)) if expand > 1 else x
            y = net.silu(net.conv(y, inputs * expand, kernel, stride, groups=inputs * expand))
            y = net.conv(net.squeeze_excite(y, inputs // 4, "Silu", "Sigmoid"), out, 1)
            x = net.add(x, y) if stride == 1 and inputs == out else y
    return net.classifier(net.silu(net.conv(x, 1280, 1)))


def squeezenet(net: Network) -> str:
    """Build SqueezeNet 1.1 (Iandola and others, 2016)."""
    x = net.relu(net.conv("x", 64, 3, 2, padded=False, norm=False))
    for squeezed, expanded, pooled in (
        (16, 64, 1), (16, 64, 0), (32, 128, 1), (32, 128, 0),
        (48, 192, 1), (48, 192, 0), (64, 256, 0), (64, 256, 0),
    ):  # fmt: skip
        x = net.max_pool(x, 3, 2, padded=False) if pooled else x
        y = net.relu(net.conv(x, squeezed, 1, norm=False))
        x = net.concat(*(net.relu(net.conv(y, expanded, kernel, norm=False)) for kernel in (1, 3)))
    return net.means(net.relu(net.conv(x, 1000, 1, norm=False)))


def inception_v3(net: Network) -> str:
    """Build Inception v3 (Szegedy and others, 2015) without its second head."""

    def layer(
        x: str, out: int, kernel: int | tuple[int, int] = 1, stride: int = 1, padded: bool = True
    ) -> str:
        return net.relu(net.conv(x, out, kernel, stride, padded=padded))

    def chain(x: str, *layers: tuple[int, int | tuple[int, int]]) -> str:
        for out, kernel in layers:
            x = layer(x, out, kernel)
        return x

    x = layer(layer(layer("x", 32, 3, 2, False), 32, 3, 1, False), 64, 3)
    x = layer(layer(net.max_pool(x, 3, 2, padded=False), 80), 192, 3, 1, False)
    x = net.max_pool(x, 3, 2, padded=False)
    for pooled in (32, 64, 64):
        branches = (chain(x, (48, 1), (64, 5)), chain(x, (64, 1), (96, 3), (96, 3)))
        x = net.concat(layer(x, 64), *branches, layer(net.average_pool(x, 3, 1), pooled))
    branches = (layer(x, 384, 3, 2, False), layer(chain(x, (64, 1), (96, 3)), 96, 3, 2, False))
    x = net.concat(*branches, net.max_pool(x, 3, 2, padded=False))
    for inner in (128, 160, 160, 192):
        seven = chain(x, (inner, 1), (inner, (1, 7)), (192, (7, 1)))
        twice = (inner, (7, 1)), (inner, (1, 7)), (inner, (7, 1)), (192, (1, 7))
        x = net.concat(
            layer(x, 192), seven, chain(x, (inner, 1), *twice), layer(net.average_pool(x, 3, 1), 192)
        )
    first, second = layer(x, 192), chain(x, (192, 1), (192, (1, 7)), (192, (7, 1)))
    branches = (layer(first, 320, 3, 2, False), layer(second, 192, 3, 2, False))
    x = net.concat(*branches, net.max_pool(x, 3, 2, padded=False))
    for _ in range(2):
        first, second = layer(x, 384), chain(x, (448, 1), (384, 3))
        wide = [layer(part, 384, kernel) for part in (first, second) for kernel in ((1, 3), (3, 1))]
        x = net.concat(layer(x, 320), *wide, layer(net.average_pool(x, 3, 1), 192))
    return net.classifier(x)


def unet(net: Network) -> str:
    """Build U-Net (Ronneberger and others, 2015), padded, with batch normalisations and one class."""

    def twice(x: str, out: int) -> str:
        return net.relu(net.conv(net.relu(net.conv(x, out)), out))

    x, levels = "x", []
    for level in range(4):
        levels.append(twice(x, 64 << level))
        x = net.max_pool(levels[-1], 2, 2, padded=False)
    x = twice(x, 64 << 4)
    for level in reversed(range(4)):
        x = twice(net.concat(levels[level], net.upconv(x, 64 << level)), 64 << level)
    return net.op("Sigmoid", [net.conv(x, 1, 1, norm=False)], 1)


NETWORKS: Mapping[str, Callable[[Network], str]] = {
    "resnet-18": partial(resnet, blocks=(2, 2, 2, 2)),
    "resnet-34": partial(resnet, blocks=(3, 4, 6, 3)),
    "resnet-50": partial(resnet, blocks=(3, 4, 6, 3), bottleneck=True),
    "resnet-101": partial(resnet, blocks=(3, 4, 23, 3), bottleneck=True),
    "resnet-152": partial(resnet, blocks=(3, 8, 36, 3), bottleneck=True),
    "vgg-11": partial(vgg, blocks=(1, 1, 2, 2, 2)),
    "vgg-13": partial(vgg, blocks=(2, 2, 2, 2, 2)),
    "vgg-16": partial(vgg, blocks=(2, 2, 3, 3, 3)),
    "vgg-19": partial(vgg, blocks=(2, 2, 4, 4, 4)),
    "mobilenet": mobilenet_v1,
    "mobilenet-v2": mobilenet_v2,
    "mobilenet-v3-large": mobilenet_v3,
    "efficientnet-b0": efficientnet,
    "squeezenet-v1.1": squeezenet,
    "inception-v3": inception_v3,
    "unet": unet,
}


@dataclass(frozen=True)
class NetworkSummary:
    """A network that has a name."""

    name: str
    size: int
    """Height and width of its pictures where ``--shape`` says nothing."""
    parameters: int
    macs: int
    """Multiplications with addition for one such picture."""


def known_name(text: str) -> str | None:
    """Return the name in the table that *text* spells: ``resnet18`` or ``squeezenet_v1.1``, but no file's."""
    return _SPELLINGS.get(_letters(text.removesuffix(UNTRAINED)))


def named(model: Path) -> Path | None:
    """Return the model file of the network that *model* names; None where it is a file, or no name of one."""
    text = str(model)
    if model.suffix and not model.suffix[1:].isdecimal():  # that of a file
        return None
    if known := known_name(text):
        if not model.is_file():
            return network_file(known)
        log.warning("%s is a file here: it is taken, not the network of that name", model)
    elif not model.exists() and did_you_mean(text, NETWORKS):
        raise no_network(text)
    return None


def no_network(text: str) -> ModelError:
    """Return the error where nothing is called *text*."""
    return ModelError(
        f"there is neither a model file nor a network {text}.{did_you_mean(text, NETWORKS)}",
        remedy="Check the path; `adt networks` lists the networks.",
    )


def network_file(name: str) -> Path:
    """Return the model of the network *name* in the cache; build it when it is absent or damaged."""
    file = f"{name}{UNTRAINED}.onnx"
    log.info("%s is an untrained network: its speed is that of a trained one, its answers mean nothing", name)

    def write(directory: Path) -> None:
        write_network(name, directory / file)

    return cache.entry(f"networks/{REVISION}/{name}", write)[0] / file


def write_network(name: str, path: Path, size: int | None = None) -> Path:
    """Write the network *name* as ONNX, for a batch of one picture of *size*; None leaves both open."""
    net = Network((1, 3, size, size)) if size else _empty(name)
    output = NETWORKS[name](net)
    batch, *_, width = net.shape
    return net.save(path, output, (batch, 1, width, width) if name == "unet" else (batch, 1000))


def summary(name: str) -> NetworkSummary:
    """Summarize the network *name*, without drawing weights."""
    net = _empty(name)
    NETWORKS[name](net)
    return NetworkSummary(name, SIZES.get(name, SIDE), net.parameters, net.macs())


def _empty(name: str) -> Network:
    if name in FIXED:
        return Network(("batch", 3, SIDE, SIDE))
    return Network(("batch", 3, "size", "size"), {"size": SIZES.get(name, SIDE)})


def _letters(text: str) -> str:
    return re.sub(r"[-_.]", "", text.lower())


_SPELLINGS = {_letters(name): name for name in NETWORKS}
_SPELLINGS |= {
    "mobilenetv1": "mobilenet",
    "mobilenetv3": "mobilenet-v3-large",
    "efficientnet": "efficientnet-b0",
}
