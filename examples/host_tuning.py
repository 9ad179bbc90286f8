# %% [markdown]
# # Tune a classifier on this machine: a picture and its five best classes
#
#     pip install ".[image,tune]"
#     python examples/host_tuning.py
#
# TVM's first tutorial (a ResNet-50 and a cat: import, compile, run, tune, compile again, compare), with what takes
# the place of each step. All of it runs on this machine's processor, in two or three minutes with so few trials.

# %%
from __future__ import annotations

from pathlib import Path

from efficientnet_lite0 import download

import adt
from adt.package.classes import rank, read_labels
from adt.package.inputs.pictures import PictureOptions
from adt.verbs import tune_result

TRIALS = 8  # for real: 1000 and more

# %% [markdown]
# ## The model
#
# EfficientNet-Lite0, trained on ImageNet; it, the names of its classes and the picture of a cat are in packages of
# the Python index. `adt compile` takes a `model.onnx` of your own, or its address.

# %%
model = download(Path())

# %% [markdown]
# ## Compile, run, and look at the classes
#
#     adt build-target --for host
#     adt compile efficientnet-lite0.onnx --for host -o untuned
#     adt run untuned --image cat.png --crop center --range=-1,1 --labels labels.json
#
# Each step of the import is checked with onnxruntime, and so is what the package computes.

# %%
PREPARED = PictureOptions(crop=True, range=(-1.0, 1.0))  # as when the network was trained


def classes(package: Path) -> list[str]:
    """Return the five best classes of the cat."""
    outputs = adt.run(package, images=["cat.png"], picture=PREPARED).outputs
    best = rank(outputs, labels=read_labels(Path("labels.json")), top=5, softmax=True).rows[0]
    return [f"class='{each.label}' with probability={each.probability:f}" for each in best]


adt.build_target(platform="host")
untuned = adt.compile(model, platform="host", out=Path("untuned"))
print("\n".join(classes(untuned.path)))

# %% [markdown]
# ## Tune
#
#     adt tune efficientnet-lite0.onnx --for host --trials 1000 --compare --db records
#
# Every record is kept in `records`; the same call with more trials goes on from there. In the end the model is run
# with its records and without, in turns.

# %%
tuned = adt.tune(model, platform="host", trials=TRIALS, db=Path("records"), compare=True)
print("\n".join(tune_result.lines(tuned)))

# %% [markdown]
# ## Compile with the records
#
#     adt compile efficientnet-lite0.onnx --for host --db records -o tuned

# %%
optimised = adt.compile(model, platform="host", db=Path("records"), out=Path("tuned"))
print("\n".join(classes(optimised.path)))
