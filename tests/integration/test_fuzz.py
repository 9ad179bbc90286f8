"""The runner's readers take or refuse any bytes, and never crash: a short run of each fuzz target.

Long runs are recorded in docs/hardening.md; the flaws that it names are among the seeds.
"""

import hashlib
import re
from pathlib import Path

import pytest
from test_cpp_runner import BAD_FILES, Package, mixed

from adt.package.files import LIBRARY, MANIFEST, PARAMS
from support.codegen import sanitized
from support.models import fuzz_seeds

__all__ = ["mixed"]

RUNS = {"c_api": 300, "mod_json": 1000, "npy": 20000, "npz": 20000, "params": 20000, "program_cache": 10000}
"""Executions of each target beyond its seeds; seconds in all."""


def seeds_of(target: str, package: Package) -> dict[str, bytes]:
    """Return the seeds of *target*. ``@PARAMS@``, ``@SIZE@``: see fuzz/c_api.cc."""
    params = (package.path / PARAMS).read_bytes()
    text = (package.path / MANIFEST).read_text()
    digest, size = hashlib.sha256(params).hexdigest(), f'"size": {len(params)}'
    assert digest in text and size in text
    manifest = text.replace(digest, "@PARAMS@").replace(size, '"size": @SIZE@').encode()
    images = manifest.replace(b'"images": []', b'"images": ["weight"]').replace(b'"cpu"', b'"opencl"')
    assert images.count(b'"opencl"') > 1
    huge = manifest.replace(b'"shape": [', b'"shape": [1152921504606846976, ')
    seeds = {
        "c_api": {
            "right": manifest + b"\0" + params,
            "no manifest": b"\0" + params,
            "no params": manifest,
            "huge shape": huge + b"\0" + params,
            "images": images + b"\0" + params,
            **{name: manifest + b"\0" + data for name, data in fuzz_seeds.BAD_PARAMS.items()},
        },
        "mod_json": {"right": text.encode(), "huge shape": huge, "images": images, **fuzz_seeds.DEEP},
        "npy": fuzz_seeds.NPY,
        "npz": fuzz_seeds.npz() | {name: make() for name, (make, _) in BAD_FILES.items()},
        "params": fuzz_seeds.GOOD_PARAMS | fuzz_seeds.BAD_PARAMS | {"tvm's": params},
        "program_cache": fuzz_seeds.PROGRAMS,
    }
    return seeds[target]


@pytest.mark.parametrize("target", list(RUNS))
def test_short_run(target: str, mixed: Package, tmp_path: Path) -> None:
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    seeds = seeds_of(target, mixed)
    for name, data in seeds.items():
        (corpus / name.replace(" ", "-")).write_bytes(data)
    done = sanitized.run(
        sanitized.build() / "bin" / f"fuzz_{target}",
        f"-runs={len(seeds) + RUNS[target]}", "-seed=1", "-timeout=60", "-rss_limit_mb=2048", "-malloc_limit_mb=256",
        "-max_len=1000000", f"-artifact_prefix={tmp_path}/", corpus,
        ADT_FUZZ_LIBRARY=str(mixed.path / LIBRARY),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    executions = re.search(r"^Done (\d+) runs", done.stderr, re.MULTILINE)
    # libFuzzer may do some more: what it reads again from the corpus counts, too.
    assert executions and int(executions[1]) >= len(seeds) + RUNS[target], done.stderr[-4000:]
