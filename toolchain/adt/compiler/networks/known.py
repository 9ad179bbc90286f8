"""The table of networks by name, and the file of each in the cache."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from adt.compiler.networks.builder import Network
from adt.compiler.networks.convolutional import (
    efficientnet,
    inception_v3,
    mobilenet_v1,
    mobilenet_v2,
    mobilenet_v3,
    resnet,
    squeezenet,
    unet,
    vgg,
)
from adt.errors import ModelError
from adt.host import cache
from adt.options.resolve import did_you_mean

log = logging.getLogger("adt")

REVISION = 1  # counts up when the bytes of some network's file change; a test knows their sha256
UNTRAINED = "-untrained"  # in the name of each file, which goes to the packages made of it
SIZES = {"inception-v3": 299, "unet": 256}
SIDE = 224
"""Height and width of pictures, unless :data:`SIZES` has others."""
FIXED = {"vgg-11", "vgg-13", "vgg-16", "vgg-19"}  # networks for pictures of one size

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
    bare = not model.suffix or model.suffix[1:].isdecimal()  # any other suffix is that of a file
    known = known_name(text) if bare else None
    if model.is_file():
        if known:
            log.warning("%s is a file here: it is taken, not the network of that name", model)
        return None
    if known:
        return network_file(known)
    if bare and not model.exists() and did_you_mean(text, NETWORKS):
        raise no_network(text)
    return None


def no_network(text: str) -> ModelError:
    """The error where nothing is called *text*."""
    return ModelError(
        f"there is neither a model file nor a network {text}.{did_you_mean(text, NETWORKS)}",
        remedy="Check the path; `adt networks` lists the networks.",
    )


def network_file(name: str) -> Path:
    """The model of the network *name* in the cache; it is built when it is absent or damaged."""
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


def built(name: str) -> Network:
    """The network *name*, whose batch and, where that can be, size are open; its weights are not drawn."""
    net = _empty(name)
    NETWORKS[name](net)
    return net


def summary(name: str) -> NetworkSummary:
    """Summarize the network *name*."""
    net = built(name)
    return NetworkSummary(name, SIZES.get(name, SIDE), net.parameters, net.macs())


def _empty(name: str) -> Network:
    size = SIZES.get(name, SIDE)
    if name in FIXED:
        return Network(("batch", 3, size, size))
    return Network(("batch", 3, "size", "size"), {"size": size})


def _letters(text: str) -> str:
    return re.sub(r"[-_.]", "", text.lower())


_SPELLINGS = {_letters(name): name for name in NETWORKS}
_SPELLINGS |= {
    "mobilenetv1": "mobilenet",
    "mobilenetv3": "mobilenet-v3-large",
    "efficientnet": "efficientnet-b0",
}
