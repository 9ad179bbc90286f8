"""Remedies that print a command, and command lines that meet them."""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

VERBS = (
    "adb|apk|bench|build-target|bundles|clean|compile|db|devices|doctor|elf|emulator|generate|inspect|install|networks"
    "|package|presets|probe|quantize|report|rpc|run|tracker|tune|verify"
)
_COMMAND = re.compile(rf"(?:adt (?:{VERBS})|mkdir -p|mv|cp -rL)\b[^;`\n]*")
_END = re.compile(
    r", or | or |, then| names | tells | lists | shows | starts | makes | builds | says |\. |\)| \(|, which"
)
PLACEHOLDER = re.compile(r"(?<![\w./-])[A-Z][A-Z:]{1,}(?:\.\w+)?(?![\w/])|(?<= )[SKN](?= |$)")
"""A word in capitals, which stands for something that the user has to know."""


def commands(remedy: str) -> list[str]:
    """Return the commands in *remedy*: after two blanks the whole line, else up to what ends a sentence."""
    ready = re.findall(r"^  (adt .*)$", remedy, re.MULTILINE)
    rest = re.sub(r"^  adt .*$", "", remedy, flags=re.MULTILINE)
    within = [_END.split(match[0])[0].rstrip(" .,:") for match in _COMMAND.finditer(rest)]
    return ready + [command for command in within if len(command.split()) > 1]


@dataclass(frozen=True)
class Case:
    """A command line that ends in an error whose remedy has commands."""

    line: str
    """Arguments of `adt`, as in a shell."""
    message: str
    """Message of the error as docs/messages.py has it: … for what varies."""
    codes: Mapping[str, Collection[int]] = field(default_factory=dict)
    """Beginning of a command → exit codes with which it may end; else 0."""
    unknown: Collection[str] = ()
    """Placeholders that nobody but the user knows; commands with these are not run."""
    again: bool = False
    """True if the same command line works after the remedy."""
    after: str = ""
    """Arguments of `adt` that work after the remedy."""


OPEN_SHAPES = "open dimensions: …"
TABLE = (
    Case("compile open.onnx --for host -o out", OPEN_SHAPES, after="verify out"),
    Case("compile cache.onnx --for host -o out", OPEN_SHAPES, after="verify out"),
    Case("verify pkg --reference wrong.npz", "… of … outputs differ: …"),
    Case("verify pkg -i x.npz --reference far.npz --max-rel 0", "… of … outputs differ: …"),
    Case("verify logpkg -i some.npz", "NaN or infinity in … of … outputs, in the reference, too: …"),
    Case("verify argpkg --reference index.npz", "… of … outputs differ: …"),
    Case("verify logpkg -i some.npz --reference partly.npz", "… of … outputs differ: …"),
    Case("verify pkg --reference float.onnx --min-snr 200", "… of … outputs differ: …"),
    Case("compile m.onnx --for host --bundle gone -o out", "there is no bundle …", unknown=["PLATFORM"]),
    Case("run m.onnx", "… is a model, not a package", after="inspect m-pkg"),
    Case("quantize pkg -o q.onnx", "… is a package, not a model"),
    Case(
        "run pkg --bundle changed",
        "… is not the file that bundle.json describes",
    ),
    Case("compile m.onnx --for nonsense", "unknown platform ….…"),
    Case("compile resnet99 --for host", "there is neither a model file nor a network ….…"),
    Case(
        "compile foo.onnx --for host",
        "… uses operators that cannot be imported: …",
        codes={"adt compile": [9]},
    ),
    Case("bench pkg --ab pkg pkg", "one package is measured, or two are compared"),
    Case("bench", "one package is measured, or two are compared", unknown=["PACKAGE"]),
    Case("db stats gone", "there is no tuning database …", unknown=["MODEL"]),
    Case("clean", "no device is connected", unknown=["HOST:PORT"], again=True),
    Case("clean --serial gone", "no device has the serial … (…)"),
    Case("emulator stop gone", "no virtual device … is running"),
    Case("run pkg --via rpc --key k --tracker 127.0.0.1:9", "no tracker runs at …"),
    Case("run pkg --bundle arm", "the package … is compiled for … (…), the bundle is for … (…)"),
    Case("run pkg -o no/such/out.npz", "there is no directory …", again=True),
    Case("run pkg -o 'a b/c/out.npz'", "there is no directory …", again=True),
    Case("inspect pkg --opencl", "… has no … kernels: it is compiled for …"),
    Case("run dpkg", "… is not the file that mod.json describes", again=True),
    Case("inspect dpkg", "… is not the file that mod.json describes", again=True),
    Case(
        "compile linked/m.onnx --for host -o out",
        "a data file of … cannot be read: …",
        after="compile linked-copy/m.onnx --for host -o out",
    ),
    Case("run i8pkg --image p.png", "input … is int8, which cannot hold pixels from 0 to 255"),
    Case(
        "run pkg --image p.png --resize 8",
        "--resize … is the length of the shorter side, which goes with --crop center",
    ),
    Case(
        "compile m.onnx --for host --half-only nn.relu -o out",
        "… is for half precision, and the precision is float32",
    ),
)
"""Command lines in a directory that tests/integration/test_remedies.py prepares."""

EXEMPT = {
    r"(device|rpc) ": "a phone, an app on one, a tracker or an RPC server in that state is needed",
    r"verbs (ConfigError|NoDevice|RunError|TrackerError|RpcError)": "the same",
    r"integrate |verbs MismatchError .*android|verbs VerifyFailed": "an APK, an Android SDK or an NDK is needed",
    r"(verbs|bundle|compiler|package) MismatchError|bundle PackageError the bundle … lacks": "another bundle is built for minutes",
    r"bundle PackageError there is no bundle": "only `adt bundles --remove` says it, of what is already listed",
    r"measure (ConfigError|RunError)": "a runner that is at fault, or an emulated device, is needed",
    r"measure InputError|tuning (ConfigError|PackageError|Busy)|integrate InputError": "names the verb that writes"
    " such a file, or a database with records, which is tuned for minutes",
    r"verbs PackageError": "the model's path is known to the user alone, or a database must be damaged",
    r"verbs ConfigError the package … computes no integers": "names the verb that quantizes",
    r"host ToolNotFound|bundle ToolNotFound|virtual |compiler CompileError": "a machine that lacks a program is needed",
    r"compiler UnsupportedOp": "no importer lets such an operator pass",
    r"(compiler|package) (PackageError|InputError|VerifyFailed)": "names verbs or options whose files the user alone knows",
    r"compiler ModelError .* name does not say so": "a PyTorch program is needed",
    r"quantization ": "the path of the model is known to the user alone",
}
"""Pattern of area, class and message → why the commands of the remedy are not followed by a test."""
