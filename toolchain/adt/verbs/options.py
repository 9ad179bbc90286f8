"""Options that several verbs have; settings are in :mod:`adt.options.sections`.

The request of a verb is made of them and of its own: the command line makes its flags of it, and Python the
keywords of ``adt.compile(...)``.
"""

from __future__ import annotations

import os
import re
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

    Arrays = Mapping[str, ArrayLike]
else:
    Arrays = Mapping[str, Any]  # for help: numpy's type takes ten lines


def quiet(*_event: object) -> None:
    """Ignore an event."""


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
    if not {"/", "\\", ":"} & set(os.fspath(model)):  # as names of networks are spelled
        from adt.compiler.networks.known import named

        model = named(Path(model)) or model
    if runs:
        from adt.compiler.importers.model_store import require_trusted

        require_trusted(model, bool(arguments["trust"]))
    return model


def load_npz(path: Path) -> Arrays:
    """Load the arrays of an .npz file by name; pickled objects are refused."""
    from adt.host.npz import named_arrays

    return named_arrays(path)


def check_affinity(text: str) -> None:
    """Raise ConfigError unless *text* is a name of cores, or numbers of them."""
    if not re.fullmatch(r"(big|little|all|\d+(-\d+)?(,\d+(-\d+)?)*)?", text):
        raise ConfigError(f"--affinity {text!r} names no CPUs", remedy="Give big, little, all or 0,4-7.")


def output(doc: str, *flags: str) -> Any:
    """Make the option of a file to write; it is checked before the work."""
    return option(doc, *flags, default=None, metavar="FILE", check=check_output)


PROGRESS = python("Called with a build's state, and with an empty text at its end.", default=quiet)
TRUST = option(
    "Run the code of whoever made the model here, with your rights: .pt2, .relax, module:function; "
    "with --layers, the kernels of a package made elsewhere.",
    default=False,
    help="Run the code that a model or package brings, with your rights.",
)
INSECURE_NO_DIGEST = option(
    "Take a model from an address without its sha256, and say what it is.", default=False
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
    "Bundle that the package will run with; Android needs one; else the newest one built here.",
    default=None,
    metavar="DIR",
)
LIKE = option(
    "Serial of a device to compile for: its platform, its CPUs' features, its OpenCL's limits.",
    default=None,
    metavar="SERIAL",
    offers="serial",
)
BUNDLES = option("Bundle for a platform; else the newest built here.", "--bundle", default=(), metavar="DIR")
ALLOW_4K = option(
    "Take libraries that devices with 16 KB pages, and so Google Play, refuse.", "--allow-4k", default=False
)
BUNDLE = option("Bundle to run with; else the newest fitting one built here.", default=None, metavar="DIR")
KEY = option("Key under which clients ask the tracker.", "--key", "-k", default="")
PORT = option("Port, or the first one to try.", default=None, least=1, most=65535)
ADDRESS = "HOST:PORT"
TRACKER_ADDRESS = option("Tracker; else adt's own.", "--tracker", default="", metavar=ADDRESS)
PACKAGE = option("Package that `adt compile` made: its directory, or x.tar.", kw_only=False)
ENTRY = option("Entry function.", default="main")
NATIVE, RPC = "native", "rpc"
VIA = option("Run by the runner, or by an RPC server.", default=NATIVE, choices=[NATIVE, RPC])
SOURCE_MODEL = option("Source model; else the copy that compiling kept.", default=None, complete=model_file)
INPUTS = option(
    "Name to array, list or number.",
    "--input",
    "-i",
    default=None,
    help="Inputs by name, as .npz; else made up from the seed.",
    cli=Path,
    parse=load_npz,
)
THREADS = option("Number of CPU threads.", default=None, least=1)
AFFINITY = option(
    "CPUs to run on: big, little, all, or numbers (4-7).", default="", metavar="CPUS", check=check_affinity
)
VERIFY = option("Compare the outputs with the reference first.", default=True)
ROUNDS = option(
    "Rounds of the comparison, each A B B A; else as --protocol says.", default=None, least=FEWEST_ROUNDS
)
ELF_BUNDLE = option("Bundle that will be on the device too.", default=None, metavar="DIR")
REMOTE_KEY = option(
    "Key of any device of the tracker, instead of --serial, with --via rpc.", "--key", "-k", default=""
)
REMOTE_TRACKER = option("Tracker for --via rpc; else adt's own.", default="", metavar=ADDRESS)
PROTOCOL = option(
    "Protocol of the measurement, for the numbers that are not given.",
    default="default",
    choices=["default", "quick", "mlperf"],
)
RUNS = option("Least number of timed runs; else as --protocol says.", default=None, least=1)
SECONDS = option("Least seconds of the timed runs; else as --protocol says.", default=None, most=MOST_SECONDS)
WARMUP_RUNS = option("Least number of warm-up runs; else as --protocol says.", default=None)
WARMUP_MS = option(
    "Least milliseconds of warm-up runs; else as --protocol says.", default=None, most=MOST_SECONDS * 1000
)
END_TO_END = option("Time copying inputs in and outputs out, too.", default=False)
COOL_DOWN = option(
    "Wait first, until the hottest zone has at most this temperature or for this time.",
    default=None,
    metavar="45C|30s",
)
RECORD = option("Keep the result for `adt report`.", default=True)
LABEL = option("Label to keep with the result.", default="")
