# %% [markdown]
# # Tune a classifier on this machine: a picture and its five best classes
#
#     pip install ".[image,tune]"
#     python examples/host_tuning.py
#
# You classify a picture of a cat, tune the network for this machine's processor, and compare it with the untuned one. With so
# few trials it takes two or three minutes.
#
# For those who know TVM's first tutorial (a ResNet-50 and a cat): `tests/seeds.md` has today's form of each of its steps.

# %%
from __future__ import annotations

import tempfile
from pathlib import Path

from efficientnet_lite0 import download

import adt

TRIALS = 8  # for real: 1000 and more
work = tempfile.TemporaryDirectory()  # removed at the end; keep the records of a real tuning
here = Path(work.name)

# %% [markdown]
# ## The model
#
# `download` writes EfficientNet-Lite0, trained on ImageNet, with its labels and a picture of a cat. `adt compile` takes your own
# `model.onnx` too, or its address.

# %%
model = download(here)

# %% [markdown]
# ## Compile, run, and look at the classes
#
#     adt build-target --for host
#     adt compile efficientnet-lite0.onnx --for host -o untuned
#     adt run untuned --image cat.png --crop center --range=-1,1 --labels labels.json
#
# adt checks each step of the import with onnxruntime. The five best classes:
#
#     class='Egyptian cat' with probability=0.388088
#     class='tiger cat' with probability=0.325250
#     class='tabby, tabby cat' with probability=0.171660

# %%
PREPARED = adt.PictureOptions(crop=True, range=(-1.0, 1.0))  # as when the network was trained


def classes(package: Path) -> list[str]:
    """Return the five best classes of the cat."""
    outputs = adt.run(package, images=[str(here / "cat.png")], picture=PREPARED).outputs
    best = adt.rank(outputs, labels=adt.read_labels(here / "labels.json"), top=5, softmax=True).rows[0]
    return [f"class='{each.label}' with probability={each.probability:f}" for each in best]


adt.build_target(platform="host")
untuned = adt.compile(model, platform="host", out=here / "untuned")
print("\n".join(classes(untuned.path)))

# %% [markdown]
# ## Tune
#
#     adt tune efficientnet-lite0.onnx --for host --trials 1000 --compare --db records
#
# `records` keeps every measurement; the same call with more trials resumes from them. At the end adt runs the model with its records
# and without, in turns, and prints a table of each kernel's times and the ratio of both models.

# %%
tuned = adt.tune(model, platform="host", trials=TRIALS, db=here / "records", compare=True)
print(tuned)

# %% [markdown]
# ## Compile with the records
#
#     adt compile efficientnet-lite0.onnx --for host --db records -o tuned
#
# The classes are the same as before.

# %%
optimised = adt.compile(model, platform="host", db=here / "records", out=here / "tuned")
print("\n".join(classes(optimised.path)))
work.cleanup()
