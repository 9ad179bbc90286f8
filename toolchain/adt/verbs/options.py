"""Options that several verbs have, each written once; settings are in :mod:`adt.options.sections`.

The request of a verb is made of them and of its own: the command line makes its flags of it, and Python the
keywords of ``adt.compile(...)``.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adt.errors import ConfigError
from adt.host.disk import check_output
from adt.limits import MOST_MODEL_BYTES
from adt.options.option import option, python
from adt.options.sections import FEWEST_ROUNDS, MOST_SECONDS

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from adt.numerics import Array

    Arrays = Mapping[str, ArrayLike]
else:
    Arrays = Mapping[str, Any]  # for help: numpy's type takes ten lines


def quiet(*_event: object) -> None:
    """Ignore an event."""


def is_word(model: str | os.PathLike[str]) -> bool:
    """Return True if *model* is spelled without directory or colon, as names of networks are."""
    return not {"/", "\\", ":"} & set(os.fspath(model))


def fetched(place: Any, *, any_digest: bool) -> Any:
    """Return *place* of a model, or the local copy of what it is the address of."""
    if place is None or not os.fspath(place).startswith(("https:/", "http:/")):
        return place
    from adt.host.download import local_file  # verbs that download nothing start without it

    return local_file(place, any_digest=any_digest, most_bytes=MOST_MODEL_BYTES)


def model_file(model: Any, arguments: Mapping[str, Any], *, runs: bool = True) -> Any:
    """Return the file of a model that is a module of Relax, an address or the name of a network.

    A verb that *runs* models that are code refuses one that is not trusted here.
    """
    params = arguments.get("params")
    if model is None:
        return None
    if not isinstance(model, str | os.PathLike):
        from adt.compiler.importers.relax import module_file  # with TVM, which others start without

        model, params = module_file(model, params or {}), None
    if params is not None:
        raise ConfigError(
            "params belong to a tvm.IRModule, and the model is a file, which has its own",
            remedy="Leave them away, or give the module.",
        )
    model = fetched(model, any_digest=bool(arguments["insecure_no_digest"]))
    if is_word(model):
        from adt.compiler.networks.known import named

        model = named(Path(model)) or model
    if runs:
        from adt.compiler.importers.model_store import require_trusted

        require_trusted(model, bool(arguments["trust"]))
    return model


def load_npz(path: Path) -> Mapping[str, Array]:
    """Load the arrays of an .npz file by name; pickled objects are refused."""
    from adt.host.npz import named_arrays

    return named_arrays(path)


def package_place(out: Path | str) -> None:
    """Raise DiskError unless a package, a directory or .tar, can be written to *out*."""
    out = Path(out)
    check_output(out, directory=out.is_dir() or out.suffix != ".tar")


PROGRESS = python("Called with a build's state, and with an empty text at its end.", default=quiet)
TRUST = option(
    "Run the code of whoever made the model here, with your rights: .pt2, .relax, module:function; "
    "with --layers, the kernels of a package made elsewhere.",
    default=False,
    help="Run code of whoever made it, with your rights: .pt2, module:function, kernels of --layers.",
)
INSECURE_NO_DIGEST = option(
    "Take a model from an address without its sha256, and say what that is.", default=False
)
MODEL = option(
    "An .onnx, .tflite, .pt2, .keras or .h5 file, its address (``https://…/m.onnx#sha256=…``), "
    "module:function, a Python callable that makes a PyTorch model, or a name of ``adt.networks()``; in "
    "Python also a ``tvm.IRModule``.",
    kw_only=False,
    help="An .onnx, .tflite, .pt2, .keras or .h5 file, its address with #sha256=…, module:function, "
    "or an untrained network of `adt networks`.",
    complete=model_file,
)
PARAMS = python(
    "Of a ``tvm.IRModule`` as the model: arrays by the names of parameters of ``main``; the others are "
    "inputs.",
    default=None,
    complete=lambda params, arguments: None,  # the model's file has them
)
LINKED_BUNDLE = option(
    "The bundle it will run with; Android needs one: by default the newest one that was built here.",
    default=None,
    metavar="DIR",
)
LIKE = option(
    "Serial of a device to compile for: its platform, its CPUs' features, its OpenCL's limits.",
    default=None,
    metavar="SERIAL",
    offers="serial",
)
BUNDLES = option("Each platform's bundle; else the newest built here.", "--bundle", default=(), metavar="DIR")
ALLOW_4K = option(
    "Take libraries that devices with pages of 16 KB, and so Google Play, do not.",
    "--allow-4k",
    default=False,
)
BUNDLE = option("The bundle; else the newest fitting one built here.", default=None, metavar="DIR")
KEY = option("What clients ask the tracker for.", "--key", "-k", default="")
PORT = option("The port, or the first one to try.", default=None, least=1, most=65535)
TRACKER_ADDRESS = option("Another tracker than adt's own.", "--tracker", default="", metavar="HOST:PORT")
PACKAGE = option("A package that `adt compile` made: its directory, or x.tar.", kw_only=False)
ENTRY = option("Entry function.", default="main")
VIA = option("By the runner, or by an RPC server.", default="native", choices=["native", "rpc"])
REMOTE_KEY = option(
    "Over RPC, instead of a serial: any device that the tracker has under it.", "--key", "-k", default=""
)
TRACKER = option("Over RPC: the tracker; else adt's own.", default="", metavar="HOST:PORT")
SOURCE_MODEL = option(
    "The source model; else the copy that compiling kept.", default=None, complete=model_file
)
INPUTS = option(
    "Name to array, list or number; made up from *seed* when not given.",
    "--input",
    "-i",
    default=None,
    help="Inputs by name, as .npz.",
    cli=Path,
    parse=load_npz,
)
THREADS = option("CPU threads.", default=None, least=1)
AFFINITY = option("CPUs to run on: big, little, all, or numbers (4-7).", default="", metavar="CPUS")
PROTOCOL = option(
    "How it is measured, as far as the numbers of runs and seconds do not say.",
    default="default",
    choices=["default", "quick", "mlperf"],
)
RUNS = option("Timed runs, at least …", default=None, least=1)
SECONDS = option("… and for at least so long.", default=None, least=0, most=MOST_SECONDS)
WARMUP_RUNS = option("Runs before them, at least …", default=None, least=0)
WARMUP_MS = option(
    "… and for at least so many milliseconds.", default=None, least=0, most=MOST_SECONDS * 1000
)
END_TO_END = option("Time copying inputs in and outputs out, too.", default=False)
COOL_DOWN = option(
    "Wait first: until the hottest zone is at most so warm (45C), or so long (30s).", default=None
)
RECORD = option("Keep the result for `adt report`.", default=True)
LABEL = option("Kept with the result.", default="")
VERIFY = option("Compare the outputs with the reference first.", default=True)
ROUNDS = option(
    "Rounds of --ab, each A B B A.",
    default=None,
    help="Rounds, each A B B A.",
    least=FEWEST_ROUNDS,
)

ELF_BUNDLE = option("The bundle that will be on the device too.", default=None, metavar="DIR")
