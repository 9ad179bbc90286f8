"""Key by which targets and versions of TVM share records: the code for them is the same."""

from __future__ import annotations

import json
import re
from typing import Any

from adt.compiler.targets import ModelTarget

ELSEWHERE = ("kind", "mtriple", "mattr", "keys", "tag", "device", "host", "num-cores", "mfloat-abi", "mabi")
"""Attributes of TVM's llvm target that a key has in another form, or that decide nothing of a kernel."""


def target_key(target: ModelTarget) -> str:
    """Return what *target*'s kernels are generated for, as canonical JSON.

    For a GPU that is which one (of CUDA's the architecture), and whether tensors lie in textures; its limits
    and the processor beside it are not. For a CPU it is the instruction set: architecture, core and
    features, whatever the operating system and the number of cores.
    """
    spec = target.spec
    if target.device == "cuda":
        facts = {"kind": "cuda", "arch": spec["arch"]}
    elif target.device != "cpu":
        facts = {"kind": spec["kind"], "device": spec.get("device", ""), "textures": target.textures}
    else:
        facts = {"kind": "llvm", "arch": _arch(str(spec.get("mtriple", "")))}
        facts |= {name: value for name, value in spec.items() if name not in ELSEWHERE and value != ""}
        if features := sorted(spec.get("mattr", ())):
            facts["mattr"] = features
    return _text(facts)


def without_textures(key: str) -> str | None:
    """Return the key of the same target with all tensors in buffers; None if *key* has no textures."""
    facts: dict[str, Any] = json.loads(key)
    return _text(facts | {"textures": False}) if facts.get("textures") else None


def key_words(key: str) -> str:
    """Describe a key for people: ``adreno (textures)``, ``cuda sm_87``, ``aarch64 cortex-a76 +dotprod``."""
    try:
        facts: dict[str, Any] = json.loads(key)
    except ValueError:
        return key
    if facts.get("kind") == "cuda":
        return f"cuda {facts.get('arch', '?')}"
    if facts.get("kind") != "llvm":
        name = facts.get("device") or facts.get("kind", "?")
        return f"{name} ({'textures' if facts.get('textures') else 'buffers'})"
    return " ".join(
        [str(facts.get("arch", "?")), str(facts.get("mcpu", "")), *facts.get("mattr", ())]
    ).strip()


def tvm_key() -> str:
    """Return TVM's version as records have it: ``0.25.0``."""
    import tvm

    return tvm_version(str(tvm.__version__))


def tvm_version(text: str) -> str:
    """Return the numbers of a version, without what follows them: ``0.25.0.post1`` is ``0.25.0``."""
    return ".".join(re.findall(r"\d+", text.partition("post")[0].partition("dev")[0])[:3])


def _text(facts: dict[str, Any]) -> str:
    return json.dumps(facts, sort_keys=True, separators=(",", ":"))


def _arch(triple: str) -> str:
    arch = triple.partition("-")[0]
    return "arm" if arch.startswith(("arm", "thumb")) else {"arm64": "aarch64"}.get(arch, arch)
