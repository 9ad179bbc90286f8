"""The native methods of ``NativeRunner`` and ``ImageFiller``, described once, for Java and for C++.

Java has them as ``native`` methods, C++ as functions named by the rules of JNI. A parameter that
one of them has and the other has not would be found only when a call goes wrong; so neither is
written by hand. What the C++ functions do stands in ``templates/jni/jni.cc.j2`` and ``images.cc.j2``, whose
heads :func:`cpp_head` writes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from adt.integrate.templates import WIDTH, filled, wrap

CLASS = "NativeRunner"
IMAGE_CLASS = "ImageFiller"

CPP_TYPES = {
    "void": "void",
    "boolean": "jboolean",
    "int": "jint",
    "long": "jlong",
    "byte[]": "jbyteArray",
    "int[]": "jintArray",
    "long[]": "jlongArray",
    "float[]": "jfloatArray",
    "Bitmap": "jobject",
    "ByteBuffer": "jobject",
    "RunnerOptions.BuildProgress": "jobject",
}
"""JNI's type of each Java type that the methods use."""


@dataclass(frozen=True)
class Parameter:
    """One parameter of a native method."""

    type: str
    """In Java; a key of :data:`CPP_TYPES`."""
    name: str
    """In Java; :attr:`cpp` is the same in C++."""

    @property
    def cpp(self) -> str:
        """``manifest_fd`` for ``manifestFd``."""
        return "".join("_" + c.lower() if c.isupper() else c for c in self.name)


@dataclass(frozen=True)
class NativeMethod:
    """One native method; all are static but :data:`RUN_METHODS`."""

    name: str
    returns: str
    parameters: tuple[Parameter, ...]
    doc: str
    """For Java: what it does, and what it returns when it fails."""
    static: bool = True


def _method(head: str, doc: str, *, static: bool = True) -> NativeMethod:
    """From Java's own spelling: ``int run(long runner, int entry)``."""
    front, _, inside = head.removesuffix(")").partition("(")
    returns, name = front.split()
    parameters = tuple(Parameter(*parameter.split()) for parameter in inside.split(", ") if parameter)
    return NativeMethod(name, returns, parameters, doc, static)


NATIVE_METHODS = (
    _method("boolean fits()", "Whether libadt_runner.so is one that this library was compiled for."),
    _method("byte[] version()", "Of libadt_runner.so."),
    _method("byte[] abi()", "Android's name of the processor architecture that this library is for."),
    _method("int lastStatus()", "What went wrong last on this thread: 0, or a kind of AdtException."),
    _method("byte[] lastError()", "Its text."),
    _method("byte[] lastRemedy()", "What can be done about it."),
    _method(
        "int setThreads(int count, byte[] affinity)",
        "Set the threads that work for the models this thread runs; a status.",
    ),
    _method(
        "long create(byte[] directory, byte[] device, byte[] programCache, byte[] scratch, "
        "boolean ownExecutor, RunnerOptions.BuildProgress buildProgress)",
        "Load the package in a directory; 0 when that fails.",
    ),
    _method(
        "long createFrom(int manifestFd, long manifestOffset, long manifestSize, "
        "int paramsFd, long paramsOffset, long paramsSize, "
        "byte[] library, byte[] device, byte[] programCache, byte[] scratch, "
        "boolean ownExecutor, RunnerOptions.BuildProgress buildProgress)",
        "Load mod.json and mod.params from parts of open files, and the library by name; 0 when that fails.",
    ),
    _method("long createSession(long runner)", "Another session of a loaded package; 0 when that fails."),
    _method("void free(long runner)", "Release a loaded package."),
    _method("void trim()", "Give back the memory that is kept for later runs."),
    _method("byte[] packageName(long runner)", "Name of the package."),
    _method("byte[] device(long runner)", "cpu or opencl."),
    _method("byte[] deviceName(long runner)", "What the device calls itself."),
    _method("byte[] deviceDriver(long runner)", "Version of its driver; empty for a CPU."),
    _method("byte[] programCache(long runner)", "What became of the compiled OpenCL kernels."),
    _method("byte[] programCacheWarning(long runner)", "What is to be known of them; empty for nothing."),
    _method("int entryCount(long runner)", "How many functions the package has; -1 when that fails."),
    _method("byte[] entryName(long runner, int entry)", "Name of one of them."),
    _method("int inputCount(long runner, int entry)", "How many inputs it has; -1 when that fails."),
    _method("int outputCount(long runner, int entry)", "How many outputs it has; -1 when that fails."),
    _method("byte[] inputName(long runner, int entry, int input)", "Name of an input."),
    _method("byte[] inputType(long runner, int entry, int input)", "Its element type."),
    _method("long[] inputShape(long runner, int entry, int input)", "Its extents; -1 for a symbolic one."),
    _method("byte[] outputName(long runner, int entry, int output)", "Name of an output."),
    _method("byte[] outputType(long runner, int entry, int output)", "Its element type."),
    _method("long[] outputShape(long runner, int entry, int output)", "Its extents; -1 for a symbolic one."),
    _method("long misalignment(ByteBuffer array, int alignment)", "How far its address is off a multiple."),
    _method(
        "int setInput(long runner, int entry, int input, ByteBuffer array, long size, long[] shape)",
        "Have the model read a direct buffer where it lies, or, if that cannot be, a copy; a status. "
        "The shape is null for an input of fixed extents.",
        static=False,
    ),
    _method(
        "boolean reads(long runner, long tensor)",
        "Whether a model reads a tensor where it lies, or copies it by itself.",
    ),
    _method(
        "int setTensor(long runner, int entry, int input, long tensor)",
        "Have the model read a tensor, which it keeps; a status.",
    ),
    _method("boolean overlap(ByteBuffer one, ByteBuffer other)", "Whether two direct buffers share memory."),
    _method("int run(long runner, int entry)", "Run the model to its end; a status.", static=False),
    _method("long startRun(long runner, int entry)", "Ask for a run; its ticket, or 0 when that fails."),
    _method("int awaitRun(long ticket)", "Wait until the run is over; its status."),
    _method("void cancelRun(long ticket)", "End the run before its next kernel."),
    _method("void freeRun(long ticket)", "Release the ticket."),
    _method(
        "long[] resultShape(long runner, int entry, int output)",
        "Extents of an output of the last run; null when that fails.",
        static=False,
    ),
    _method(
        "long takeOutput(long runner, int entry, int output)",
        "An output of the last run as a tensor, which later runs leave alone; 0 when that fails.",
        static=False,
    ),
    _method(
        "ByteBuffer tensorMemory(long tensor)",
        "A direct buffer on the tensor's memory; null when no buffer can be: it is a device's, or empty.",
    ),
    _method(
        "int copyTensor(long tensor, ByteBuffer array, long size)", "Copy it to a direct buffer; a status."
    ),
    _method("void freeTensor(long tensor)", "Release it."),
)
"""In the order in which both languages list them.

Those that are not static take part in a run: their object, which keeps the arrays that the model
reads, stays reachable while they are at work.
"""

_INTO_INPUT = "int[] format, float[] normalisation, int[] placement, ByteBuffer scratch, ByteBuffer array, "
IMAGE_METHODS = (
    _method(
        f"int fillPixels({_INTO_INPUT}int[] pixels, int[] size)",
        "Fill an input from pixels, 0xAARRGGBB; how many floats of scratch are missing, 0 when it is filled.",
    ),
    _method(
        f"int fillYuv({_INTO_INPUT}int[] frame, ByteBuffer y, ByteBuffer u, ByteBuffer v)",
        "The same from a camera's frame.",
    ),
)
"""Methods of :data:`IMAGE_CLASS`."""
BITMAP_METHOD = _method(f"int fillBitmap({_INTO_INPUT}Bitmap bitmap)", "The same from a bitmap in ARGB_8888.")
"""Further method of :data:`IMAGE_CLASS` on Android."""


def java_declarations(methods: Sequence[NativeMethod]) -> str:
    """All of them as members of a Java class."""
    return "\n\n".join(map(_java_declaration, methods))


def _java_declaration(method: NativeMethod) -> str:
    indent = "    "
    if len(indent) + len(f"/** {method.doc} */") <= WIDTH:
        comment = f"{indent}/** {method.doc} */"
    else:
        prefix = f"{indent} * "
        comment = f"{indent}/**\n{prefix}{wrap(method.doc, WIDTH, prefix)}\n{indent} */"
    front = f"{indent}{'static ' if method.static else ''}native {method.returns} {method.name}("
    parameters = [f"{parameter.type} {parameter.name}" for parameter in method.parameters]
    line = f"{front}{', '.join(parameters)});"
    if len(line) > WIDTH:
        prefix = indent + "        "
        line = f"{front}\n{prefix}{filled(parameters, ');', prefix)}"
    return f"{comment}\n{line}"


def cpp_head(name: str, *unused: str) -> str:
    """Head of the definition of the method *name* in C++, up to its brace, as clang-format leaves it.

    Args:
        name: in Java.
        unused: parameters that the body does not use; ``env`` may be one.
    """
    methods = (*NATIVE_METHODS, *IMAGE_METHODS, BITMAP_METHOD)
    method = next(method for method in methods if method.name == name)
    named = [("JNIEnv*", "env"), ("jclass" if method.static else "jobject", "")]
    named += [(CPP_TYPES[parameter.type], parameter.cpp) for parameter in method.parameters]
    parameters = [f"{kind} {'' if word in unused else word}".rstrip() for kind, word in named]
    front = f"NATIVE({CPP_TYPES[method.returns]}, {method.name})("
    return front + filled(parameters, ") {", " " * len(front))


def cpp_macro(jni_prefix: str, cls: str) -> str:
    """The macro NATIVE, which makes the name of a method of *cls* for JNI, as clang-format leaves it.

    Args:
        jni_prefix: ``Java_com_example_vision_``.
    """
    front, types = "#define NATIVE(type, method)", "JNIEXPORT type JNICALL"
    function = f"{jni_prefix}{cls}_##method"
    if len(f"{front} {types} {function}") <= WIDTH:
        return f"{front} {types} {function}"
    if len(f"  {types} {function}") <= WIDTH:
        return f"{front} \\\n  {types} {function}"
    second = f"  {types}".ljust(len(front)) + " \\"
    return f"{front} \\\n{second}\n      {function}"
