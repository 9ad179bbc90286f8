"""Identifiers for C++, Java and Kotlin out of any text, all different and none a word of these languages.

A name goes through one way: :func:`words` takes what is a letter or a digit of ASCII out of the text,
:class:`NamePool` gives each list of words a form that is free, and :class:`Name` spells it as each
language does. Whatever the text was, an identifier matches ``[A-Za-z][A-Za-z0-9_]*``.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate

from adt.errors import ConfigError


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


CPP = _words(
    """
    alignas alignof and and_eq asm auto bitand bitor bool break case catch char char16_t char32_t char8_t
    class co_await co_return co_yield compl concept const const_cast consteval constexpr constinit
    continue decltype default delete do double dynamic_cast else enum explicit export extern false float
    for friend goto if inline int long mutable namespace new noexcept not not_eq nullptr operator or or_eq
    private protected public register reinterpret_cast requires restrict return short signed sizeof static
    static_assert static_cast struct switch template this thread_local throw true try typedef typeid
    typename union unsigned using virtual void volatile wchar_t while xor xor_eq
    """
)
JAVA = _words(
    """
    abstract assert boolean break byte case catch char class const continue default do double else enum
    extends false final finally float for goto if implements import instanceof int interface long native
    new null package private protected public return short static strictfp super switch synchronized this
    throw throws transient true try var void volatile while yield
    """
)
KOTLIN = _words(
    """
    as break class continue do else false for fun if in interface is it null object package return super
    this throw true try typealias typeof val var when while
    """
)
MACROS = _words(
    """
    assert errno linux unix i386 arm mips sun major minor stdin stdout stderr signbit isnan isinf isfinite
    isnormal offsetof setjmp va_start va_end va_arg va_copy eof null infinity nan
    """
)
"""Names that C and C++ headers, and compilers by themselves, may define as macros."""
LANGUAGES = CPP | JAVA | KOTLIN | MACROS
"""Words that no identifier may be."""
QUALIFIERS = _words("adt android androidx com java javax kotlin kotlinx org std tvm")
"""First parts of qualified names: a variable of that name would hide them."""
OBJECT = _words(
    """
    clone close copy equals finalize get_class hash_code notify notify_all run tensors to_string wait
    component1 component2 component3 component4 component5 component6 component7 component8 component9
    """
)
"""Methods of Java's objects, of Kotlin's data classes and of the generated classes."""
METHODS = _words(
    """
    bind carry create data_type device device_name driver entries entry from handle info input inputs load
    load_async manifest move native_runner open options output outputs release run_async run_suspending
    runner set_threads size start swap threads trim_memory use version
    """
)
"""Further methods that a model's class has, or may get."""
PLATFORM = _words(
    """
    annotation any appendable array auto_closeable boolean_array byte_array char_array char_sequence
    character class_loader class_value cloneable comparable comparator deprecated double_array error
    exception float_array function functional_interface int_array integer iterable lazy long_array
    long_range map math module mutable_list mutable_map mutable_set nothing number override pair process
    process_builder process_handle readable record regex result runnable runtime runtime_permission
    safe_varargs security_manager sequence set short_array stack_trace_element stack_walker strict_math
    string string_buffer string_builder suppress_warnings system thread thread_group throwable triple
    u_byte u_int u_long u_short unit
    """
)
"""Classes that Java and Kotlin know without an import: one of that name in the package would hide them."""
CLASSES = _words(
    """
    adt adt_exception adt_runner all all_build android_pictures app application array_list arrays
    asset_file_descriptor asset_manager assets aux bench benchmark benchmark_plan benchmark_subject bin
    bitmap bitmap_factory buffer build build_config builder bundle button byte_buffer byte_order canvas
    clean closeable collections color com1 con concurrent_hash_map content_resolver context
    coroutine_scope coroutines cpp dispatchers display doc docs doxygen edit_cache element entry
    executor_service executors file file_channel files float_buffer gradle half handler hash_map help
    image image_decoder image_filler image_view include input_stream install int_buffer intent
    io_exception java kind kotlin label labels layout lib library linked_hash_map lint list loaded locale
    log long_buffer looper lpt1 main main_activity manifest menu module_info native_runner nul objects
    optional output_stream package_info package_source packaged_model parcel_file_descriptor path paths
    preinstall prn project r random rebuild_cache resources row run_tests runner sample shape share
    short_buffer span spinner src std surface_view system_clock text text_view time_unit toast tvm tvm_ffi
    tvm_runtime uninstall uri utils view yuv_frame zero_check cancellation_exception completable_deferred
    coroutine_dispatcher hash_set linked_blocking_queue native_handle non_cancellable non_null nullable
    phantom_reference picture_fit rect reference_queue thread_pool_executor worker_thread
    android_view_model camera_controller component_activity image_analysis image_proxy job lifecycle
    lifecycle_camera_controller main_view_model mutable_state_flow mutex open_document pick_visual_media
    pick_visual_media_request preview_view request_permission runner_info runner_options screen state_flow
    """
)
"""Further classes that the generated code uses, CMake's own targets, directories of the generated projects,
and names that no file can have on Windows."""
CLASS_ENDINGS = _words(
    "tensor pixels inputs outputs options kt test example activity exception error models loader info jni ktx"
)
"""Endings of the classes and files that are generated beside a model's own."""
DIRECTORIES = _words(
    """
    app build bin cmake cpp docs gradle include java jni kotlin lib libs models src share std adt tvm
    runner test tests install package all clean help adt_runner tvm_runtime tvm_ffi main
    """
)
"""Names that no project may have: directories beside its module, CMake's targets, libraries."""
PACKAGE_PARTS = JAVA | _words("aux con nul prn")
"""Words that no part of a Java package may be; the last are no directories on Windows."""
PACKAGE_ROOTS = _words("android androidx dalvik java javax kotlin kotlinx sun")
"""First parts of packages that belong to the platform: its class loaders refuse others in them."""


RUNTIME_PACKAGE = "org.adt.runtime"
"""Java package of what all models share, in ``cpp_runner/java/``."""
LONGEST = 48
"""Characters of an identifier; what is longer ends after the last word that fits."""
CLASS_REMEDY = "Give a name such as Detector: --class NAME=Detector."
PACKAGE_REMEDY = "Give two or more words in lower case, your domain first: --package com.example.vision."

_WORD = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+[0-9]*|[A-Z]+[0-9]*|[0-9]+")


@dataclass(frozen=True)
class Name:
    words: tuple[str, ...]
    """Lower case; the first begins with a letter."""

    @property
    def snake(self) -> str:
        """``input_ids``."""
        return "_".join(self.words)

    @property
    def camel(self) -> str:
        """``inputIds``."""
        return self.words[0] + "".join(word.capitalize() for word in self.words[1:])

    @property
    def pascal(self) -> str:
        """``InputIds``."""
        return "".join(word.capitalize() for word in self.words)

    @property
    def constant(self) -> str:
        """``INPUT_IDS``."""
        return self.snake.upper()

    @property
    def key(self) -> str:
        """Return the form in which two names must differ: without underscores and case, all forms do."""
        return "".join(self.words)


class NamePool:
    """Gives names that differ from each other and from what is reserved."""

    def __init__(self, taken: Iterable[str] = (), endings: Iterable[str] = ()) -> None:
        """Refuse the names *taken* (snake case), and names whose last word is one of *endings*."""
        self._taken = {name.replace("_", "").lower() for name in taken}
        self._endings = frozenset(endings)

    def give(self, text: str, noun: str, *, number: int | None = None) -> Name:
        """Make a new name for *text*, with *noun* and *number* where that gives none or a reserved one."""
        parts = words(text)
        if not parts:
            parts = [noun] if number is None else [noun, str(number)]
        elif parts[0][0].isdigit():
            parts = [noun, *parts]
        name = Name(tuple(parts))
        if self.has(name) and parts[-1] != noun:
            name = Name((*parts, noun))
        count = 2
        while self.has(name):
            name = Name((*parts, noun, str(count)) if parts[-1].isdigit() else (*parts, str(count)))
            count += 1
        self.take(name)
        return name

    def take(self, name: Name) -> None:
        self._taken.add(name.key)

    def has(self, name: Name) -> bool:
        """Return True if *name* is reserved or given already."""
        return name.key in self._taken or name.words[-1] in self._endings


def words(text: str) -> list[str]:
    """Split *text* into words in lower case: ASCII letters and digits, cut where camel case begins one.

    Accents go (``Größe`` is ``gro``, ``e``; ``é`` is ``e``), everything else separates.
    """
    plain = "".join(c for c in unicodedata.normalize("NFKD", text) if not unicodedata.combining(c))
    every = [word.lower() for word in _WORD.findall(plain)]
    ends = accumulate(len(word) + 1 for word in every)
    fitting = sum(end <= LONGEST for end in ends)
    return [word[:LONGEST] for word in every[: max(1, fitting)]]


def method_names() -> NamePool:
    """Return names for the entries of one model, as methods of its class."""
    return NamePool(LANGUAGES | QUALIFIERS | OBJECT | METHODS)


def tensor_names() -> NamePool:
    """Return names for inputs and outputs of one entry, as fields, methods and parameters."""
    return NamePool(LANGUAGES | QUALIFIERS | OBJECT)


def class_names(project: str) -> NamePool:
    """Return names for the models of *project*: classes, files, CMake targets and directories."""
    return NamePool(LANGUAGES | PLATFORM | CLASSES | {project}, CLASS_ENDINGS)


def check_class(text: str, names: NamePool) -> Name:
    """Return the class that a user asked for by name; *names* does not give it again."""
    if not re.fullmatch(r"[A-Z][A-Za-z0-9]{0,47}", text):
        raise ConfigError(
            f"{text!r} is no name of a class: a capital letter, then letters and digits, at most {LONGEST}",
            remedy=CLASS_REMEDY,
        )
    name = Name(tuple(words(text)))
    if names.has(name):
        raise ConfigError(
            f"no class can be called {text}: the generated code, its languages or another model have it",
            remedy=CLASS_REMEDY,
        )
    names.take(name)
    return name


def check_package(name: str) -> None:
    """Refuse a name that is no Java package of an application."""
    parts = name.split(".")
    if len(name) > 120 or not all(re.fullmatch(r"[a-z][a-z0-9_]*", part) for part in parts):
        raise ConfigError(f"{name!r} is no name of a package for an application", remedy=PACKAGE_REMEDY)
    if len(parts) < 2:
        raise ConfigError(f"the package {name} has one part, Android wants two", remedy=PACKAGE_REMEDY)
    if used := [part for part in parts if part in PACKAGE_PARTS]:
        raise ConfigError(f"the package {name} has the reserved word {used[0]} in it", remedy=PACKAGE_REMEDY)
    if name == RUNTIME_PACKAGE:
        raise ConfigError(f"the package {name} is the runtime's own", remedy=PACKAGE_REMEDY)
    if parts[0] in PACKAGE_ROOTS:
        raise ConfigError(
            f"the package {name} begins with {parts[0]}, which belongs to the platform", remedy=PACKAGE_REMEDY
        )


def kotlin_package(java_package: str) -> str:
    """Write *java_package* as Kotlin does, with keywords of its own (``in``, for India) in backticks."""
    return ".".join(f"`{part}`" if part in KOTLIN else part for part in java_package.split("."))


def project_name(java_package: str) -> str:
    """Return ``vision`` for ``com.example.vision``; ``example_app`` for ``com.example.app``, not ``app``."""
    reserved = CPP | KOTLIN | MACROS | DIRECTORIES
    parts = java_package.split(".")
    name = "_".join(parts[-2:]) if parts[-1] in reserved else parts[-1]
    name = re.sub("_+", "_", name).strip("_")
    return f"{name}_project" if name in reserved else name
