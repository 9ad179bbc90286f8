"""The verdicts: files that load, and one for each way in which a file does not."""

import re
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from adt.bundle.audit.auditing import audit, audit_made
from adt.bundle.audit.binaries import collect
from adt.bundle.audit.destination import ANDROID, Destination, destination
from adt.bundle.audit.report import OK, REFUSED, WARNING, ElfReport, FileAudit, table
from adt.bundle.platforms import platform_named
from adt.errors import BuildError, CompileError, MismatchError, PackageError
from adt.host.ndk import Ndk
from support.devices.programs import program_output
from support.standins.elf import LIBC, Toolbox, dynamic_offset, header_offset, patched, stub_libraries

PHONE = platform_named("android-arm64-v8a")
BOARD = platform_named("linux-aarch64")


@pytest.fixture(scope="session")
def stubs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return stub_libraries(tmp_path_factory.mktemp("stubs") / "old", newer=False)


@pytest.fixture(scope="session")
def newer_stubs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return stub_libraries(tmp_path_factory.mktemp("stubs") / "new", newer=True)


@pytest.fixture
def toolbox(tmp_path: Path, stubs: Path) -> Toolbox:
    return Toolbox(tmp_path / "made", stubs)


def judge(*paths: Path, **options: object) -> ElfReport:
    """Audit *paths* as files of an Android app at API level 28."""
    judged = Destination(**({"system": ANDROID, "api_level": 28, "machine": "AARCH64"} | options))  # type: ignore[arg-type]
    return audit([file for path in paths for file in collect(path)], judged)


def only(report: ElfReport) -> FileAudit:
    (file,) = report.files
    return file


def codes(file: FileAudit) -> set[str]:
    return {finding.code for finding in file.findings}


def test_a_good_library(toolbox: Toolbox) -> None:
    file = only(judge(toolbox.link("libgood.so", needs=("libc.so", "libm.so", "liblog.so"))))
    assert file.verdict == OK and not file.findings
    assert file.page_sizes == (4096, 16384)
    assert [need.provider for need in file.needs] == ["android"] * 3


def test_a_good_program(toolbox: Toolbox) -> None:
    program = toolbox.program("tool", "void *malloc(unsigned long); void _start(void) { malloc(1); }")
    file = only(judge(program))
    assert file.verdict == OK, file.findings
    assert file.facts and file.facts.program


# Pages ---------------------------------------------------------------------------------------------


def test_pages_of_4_kb(toolbox: Toolbox) -> None:
    old = toolbox.link("libold.so", pages="-Wl,-z,max-page-size=4096,-z,common-page-size=4096")
    file = only(judge(old))
    assert file.verdict == WARNING and codes(file) == {"16-kb-pages"} and file.page_sizes == (4096,)
    assert "max-page-size=16384" in file.findings[0].remedy
    with pytest.raises(BuildError, match="16 KB pages"):
        audit_made(old.parent, PHONE, error=BuildError, api_level=28)


def test_a_header_that_claims_16_kb_for_segments_laid_out_for_4(toolbox: Toolbox, tmp_path: Path) -> None:
    """Refuse the file although its p_align is 16 KB."""
    source = 'static int a[3]; int *f(void) { return a; } int g = 4; const char *const t[2] = {"a", "b"};'
    old = toolbox.link("libold.so", source, pages="-Wl,-z,max-page-size=4096,-z,common-page-size=4096")
    for which in range(len(only(judge(old)).facts.loads)):  # type: ignore[union-attr]
        at = header_offset(old, "PT_LOAD", "p_align", which=which)
        old = patched(old, tmp_path / "libold.so", {at: struct.pack("<Q", 16384)})
    file = only(judge(old))
    assert file.facts and file.facts.page_alignment == 16384
    assert "16-kb-pages" in codes(file) and file.page_sizes == (4096,)


def test_relro_that_ends_inside_a_page_with_data(toolbox: Toolbox, tmp_path: Path) -> None:
    """Refuse data in the page to which bionic rounds the read-only part up."""
    good = toolbox.link(
        "libgood.so", "int a[9000] = {1}; extern int b; int *const p = a; int *f(void) { return p; }"
    )
    at = header_offset(good, "PT_GNU_RELRO", "p_memsz")
    (size,) = struct.unpack("<Q", good.read_bytes()[at : at + 8])
    facts = only(judge(good)).facts
    assert facts and facts.relro and facts.relro.end % 16384 == 0
    short = patched(good, tmp_path / "libgood.so", {at: struct.pack("<Q", size + 4096)})
    file = only(judge(short))
    assert codes(file) == {"16-kb-pages"} and "RELRO" in file.findings[0].what
    assert file.page_sizes == (4096,)


def test_an_address_that_does_not_fit_its_place(toolbox: Toolbox, tmp_path: Path) -> None:
    good = toolbox.link("libgood.so")
    at = header_offset(good, "PT_LOAD", "p_vaddr", which=1)
    (address,) = struct.unpack("<Q", good.read_bytes()[at : at + 8])
    file = only(judge(patched(good, tmp_path / "libgood.so", {at: struct.pack("<Q", address + 16)})))
    assert file.verdict == REFUSED and "segments" in codes(file) and file.page_sizes == ()


def test_32_bit_libraries_need_no_large_pages(toolbox: Toolbox) -> None:
    flags = ("-m32", "-Wl,-z,notext")
    small = toolbox.link(
        "lib32.so",
        "int f(void) { return 1; }",
        *flags,
        needs=(),
        api_level=None,
        gcc="gcc",
        pages="-Wl,-z,max-page-size=4096",
    )
    file = only(judge(small, machine="386"))
    assert file.page_sizes == (4096,) and "16-kb-pages" not in codes(file)


# One file on its own -------------------------------------------------------------------------------


def test_text_relocations(toolbox: Toolbox) -> None:
    source = 'extern int x; __asm__(".text\\n .balign 8\\n place: .quad x\\n"); int f(void) { return 1; }'
    bad = toolbox.link("libtext.so", source, "-Wl,-z,notext")
    file = only(judge(bad))
    assert file.facts and file.facts.text_relocations
    assert file.verdict == REFUSED and "text-relocations" in codes(file)
    glibc = audit(collect(bad), destination(BOARD)).files[0]
    assert {f.code: f.verdict for f in glibc.findings}["text-relocations"] == WARNING


def test_a_program_at_a_fixed_address(toolbox: Toolbox) -> None:
    linker = "-Wl,--dynamic-linker=/system/bin/linker64"
    fixed = toolbox.link("tool", "void _start(void) {}", "-no-pie", "-fno-pie", linker, shared=False)
    file = only(judge(fixed))
    assert file.facts and file.facts.type == "EXEC"
    assert file.verdict == REFUSED and codes(file) == {"not-pie"}
    assert only(judge(fixed, system="")).system == ANDROID


def test_a_static_program_asks_nobody(toolbox: Toolbox) -> None:
    static = toolbox.link("tool", "void _start(void) {}", "-static", needs=(), shared=False, api_level=None)
    file = only(judge(static))
    assert (file.verdict, file.system) == (OK, "kernel")


def test_a_program_for_another_dynamic_linker(toolbox: Toolbox) -> None:
    linker = "-Wl,--dynamic-linker=/lib/ld-linux-aarch64.so.1"
    other = toolbox.link("tool", "void _start(void) {}", "-pie", linker, shared=False, api_level=None)
    assert "interpreter" in codes(only(judge(other)))


def test_the_wrong_machine(toolbox: Toolbox) -> None:
    file = only(judge(toolbox.link("libarm.so"), machine="X86_64"))
    assert file.verdict == REFUSED and codes(file) == {"machine"}
    assert "AARCH64" in file.findings[0].what and "X86_64" in file.findings[0].what


def test_an_executable_stack(toolbox: Toolbox) -> None:
    file = only(judge(toolbox.link("libstack.so", "int f(void) { return 1; }", "-Wl,-z,execstack")))
    assert file.verdict == WARNING and codes(file) == {"executable-stack"}


def test_writable_code(toolbox: Toolbox, tmp_path: Path) -> None:
    good = toolbox.link("libgood.so")
    at = header_offset(good, "PT_LOAD", "p_flags", which=1)
    bad = patched(good, tmp_path / "libgood.so", {at: struct.pack("<I", 7)})
    assert codes(only(judge(bad))) == {"writable-code"}
    assert only(judge(bad, api_level=25)).verdict == WARNING  # only: built for 28


def test_thread_local_storage(toolbox: Toolbox) -> None:
    source = "__thread int t; int f(void) { return 1; }"
    library = toolbox.link("libtls.so", source)
    assert codes(only(judge(library))) == {"thread-local"}
    assert only(judge(library, api_level=29)).verdict == OK
    program = toolbox.program("tool", "__thread int t = 1; void _start(void) {}")
    assert codes(only(judge(program, api_level=30))) == {"thread-local"}


def test_hash_tables_and_section_headers(toolbox: Toolbox, tmp_path: Path) -> None:
    gnu = toolbox.link("libgnu.so", "int f(void) { return 1; }", "-Wl,--hash-style=gnu", api_level=21)
    assert only(judge(gnu)).verdict == OK
    assert codes(only(judge(gnu, api_level=21))) == {"no-hash-table"}
    bare = patched(gnu, tmp_path / "libgnu.so", {0x28: bytes(8), 0x3A: bytes(6)})
    assert codes(only(judge(bare))) == {"no-section-headers"}


def test_packed_relocations(toolbox: Toolbox, tmp_path: Path) -> None:
    good = toolbox.link("libgood.so", "static int a; int *p = &a;")
    relative = patched(
        good, tmp_path / "libgood.so", {dynamic_offset(good, "DT_RELACOUNT"): struct.pack("<Q", 36)}
    )
    assert codes(only(judge(relative))) == {"packed-relocations"}
    assert only(judge(relative, api_level=30)).verdict == OK


def test_runpaths(toolbox: Toolbox) -> None:
    body = "int f(void) { return 1; }"
    absolute = toolbox.link("liba.so", body, "-Wl,-rpath,/home/me/build:$ORIGIN", "-Wl,--enable-new-dtags")
    file = only(judge(absolute))
    assert file.verdict == WARNING and codes(file) == {"absolute-runpath"}
    assert "/home/me/build" in file.findings[0].what
    with pytest.raises(CompileError, match="/home/me/build") as caught:
        audit_made(absolute, PHONE, error=CompileError, api_level=28)
    assert "liba.so" in caught.value.details and "✗" not in caught.value.details
    old = toolbox.link("libb.so", body, "-Wl,-rpath,$ORIGIN", "-Wl,--disable-new-dtags")
    assert codes(only(judge(old))) == {"rpath"}
    new = toolbox.link("libc1.so", body, "-Wl,-rpath,$ORIGIN", "-Wl,--enable-new-dtags", api_level=23)
    assert codes(only(judge(new, api_level=23))) == {"runpath"}


def test_built_for_a_newer_android(toolbox: Toolbox) -> None:
    newer = toolbox.link("libnew.so", api_level=31)
    assert codes(only(judge(newer))) == {"api-level"}
    assert only(judge(newer, api_level=None)).api_level == 31


# What files need from one another ------------------------------------------------------------------


def runtime(toolbox: Toolbox) -> Path:
    """Build a library like the model's runtime, from which other libraries take their symbols."""
    return toolbox.link("libruntime.so", "int runtime_call(void) { return 1; }")


MODULE = """
int runtime_call(void); void *malloc(unsigned long);
int entry(void) { malloc(8); return runtime_call(); }
"""


def test_a_provider_that_is_loaded_but_not_named(toolbox: Toolbox) -> None:
    """Report the symbol that glibc finds in any loaded file, and bionic in DT_NEEDED alone."""
    supplier = runtime(toolbox)
    module = toolbox.link("mod.so", MODULE, needs=("libc.so",))
    file = judge(module, supplier).files[0]
    assert file.verdict == REFUSED and codes(file) == {"symbol-not-in-needed"}
    assert file.symbols.missing == ("runtime_call",)
    assert "libruntime.so" in file.findings[0].what and "-l:libruntime.so" in file.findings[0].remedy
    with pytest.raises(CompileError, match="runtime_call"):
        audit_made(module, PHONE, error=CompileError, api_level=28, bundle=supplier.parent)
    linked = toolbox.link("mod.so", MODULE, needs=("libc.so", str(supplier)))
    assert judge(linked, supplier).files[0].verdict == OK
    audit_made(linked, PHONE, error=CompileError, api_level=28, bundle=supplier.parent)


def test_the_same_module_for_glibc(toolbox: Toolbox) -> None:
    module = toolbox.link(
        "mod.so",
        "int runtime_call(void); int entry(void) { return runtime_call(); }",
        needs=(),
        api_level=None,
    )
    alone = audit(collect(module), destination(BOARD)).files[0]
    assert alone.verdict == WARNING and codes(alone) == {"symbol-from-program"}
    supplier = toolbox.link("libruntime.so", "int runtime_call(void) { return 1; }", needs=(), api_level=None)
    both = audit([*collect(module), *collect(supplier)], destination(BOARD))
    assert both.verdict == OK


def test_a_symbol_that_nobody_has(toolbox: Toolbox) -> None:
    """Find it without an NDK: libc's symbols have versions, liblog's begin with __android_log_."""
    file = only(judge(toolbox.link("libplugin.so", MODULE, needs=("libc.so", "liblog.so"))))
    assert file.verdict == REFUSED and codes(file) == {"symbol-missing"}
    assert file.symbols.missing == ("runtime_call",) and file.symbols.unchecked == 1
    program = toolbox.program(
        "tool", "int runtime_call(void) { return 1; } void _start(void) {}", "-rdynamic"
    )
    assert judge(toolbox.directory / "libplugin.so", program).files[0].verdict == OK


def test_weak_symbols_may_be_missing(toolbox: Toolbox) -> None:
    source = "__attribute__((weak)) int maybe(void); void *malloc(unsigned long); int f(void) { malloc(1); return maybe ? maybe() : 0; }"
    file = only(judge(toolbox.link("libweak.so", source)))
    assert file.verdict == OK and file.symbols.weak_missing == ("maybe",)


def test_needed_through_others_counts(toolbox: Toolbox) -> None:
    supplier = runtime(toolbox)
    middle = toolbox.link("libmiddle.so", "int g(void) { return 1; }", needs=(str(supplier), "libc.so"))
    module = toolbox.link("mod.so", MODULE, "-Wl,--allow-shlib-undefined", needs=(str(middle), "libc.so"))
    assert judge(module, supplier, middle).verdict == OK


def test_missing_libraries(toolbox: Toolbox, tmp_path: Path) -> None:
    supplier = runtime(toolbox)
    module = toolbox.link("mod.so", MODULE, needs=("libc.so", str(supplier)))
    report = judge(module)
    file = only(report)
    assert file.verdict == REFUSED and codes(file) == {"missing-library"}
    assert file.symbols.missing == (), "the symbol may be in the library that is not here"
    assert [(row.name, row.source) for row in report.deploy] == [("libruntime.so", "")]
    renamed = tmp_path / "renamed.so"
    renamed.write_bytes(supplier.read_bytes())
    assert "Call that file libruntime.so" in judge(module, renamed).files[0].findings[0].remedy
    bundle = audit(collect(module), Destination(api_level=28), bundle=supplier)
    assert bundle.verdict == OK
    assert [(row.name, row.source) for row in bundle.deploy] == [("libruntime.so", str(supplier))]


@pytest.mark.parametrize(
    ("name", "level", "code", "verdict"),
    [
        ("libvulkan.so", 28, "", OK),
        ("libvulkan.so", 23, "library-too-new", REFUSED),
        ("libneuralnetworks.so", 26, "library-too-new", REFUSED),
        ("libicu.so", 30, "library-too-new", REFUSED),
        ("libOpenCL.so", 34, "vendor-library", WARNING),
        ("libcutils.so", 28, "private-library", REFUSED),
        ("libstdc++.so.6", 28, "not-for-android", REFUSED),
        ("libc++_shared.so", 28, "missing-library", REFUSED),
        ("libother.so", 28, "missing-library", REFUSED),
    ],
)
def test_who_has_a_library(name: str, level: int, code: str, verdict: str, toolbox: Toolbox) -> None:
    stub = toolbox.link(f"system/{name}", api_level=None, needs=())
    library = toolbox.link("libx.so", needs=("libc.so", str(stub)), api_level=21)
    file = only(judge(library, api_level=level))
    assert file.verdict == verdict
    assert codes(file) == ({code} if code else set())
    if code == "vendor-library":
        assert '<uses-native-library android:name="libOpenCL.so"' in file.findings[0].remedy


def test_a_path_in_dt_needed(toolbox: Toolbox, tmp_path: Path) -> None:
    nameless = patched(runtime(toolbox), tmp_path / "libnameless.so", {})
    at = dynamic_offset(nameless, "DT_SONAME")
    nameless = patched(nameless, tmp_path / "libnameless.so", {at: struct.pack("<Q", 0x6FFFFDF8)})
    module = toolbox.link("mod.so", MODULE, needs=("libc.so", str(nameless)))
    assert "SONAME" in only(judge(module)).findings[0].remedy


def test_a_runpath_must_lead_a_program_to_its_libraries(toolbox: Toolbox) -> None:
    supplier = toolbox.link("lib/libruntime.so", "int runtime_call(void) { return 1; }")
    source = "int runtime_call(void); void _start(void) { runtime_call(); }"
    needs = ("libc.so", str(supplier))
    lost = toolbox.program("bin/lost", source, needs=needs)
    program = toolbox.program(
        "bin/found", source, "-Wl,-rpath,$ORIGIN/../lib", "-Wl,--enable-new-dtags", needs=needs
    )
    report = judge(lost, program, supplier)
    assert [codes(file) for file in report.files] == [{"unreachable"}, set(), set()]
    with pytest.raises(BuildError, match="lost"):
        audit_made(toolbox.directory, PHONE, error=BuildError, api_level=28)


# The NDK's stub libraries --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def ndk(tmp_path_factory: pytest.TempPathFactory, stubs: Path, newer_stubs: Path) -> Ndk:
    """Create the parts of an NDK that the audit reads; the libraries are stand-ins."""
    root = tmp_path_factory.mktemp("ndk")
    libraries = root / "toolchains/llvm/prebuilt/linux-x86_64/sysroot/usr/lib/aarch64-linux-android"
    shutil.copytree(stubs, libraries / "21")
    shutil.copytree(newer_stubs, libraries / "29")
    lent = Toolbox(root / "lent", stubs).link(
        "libc++_shared.so", "int _Znwm(void) { return 1; }", pages="-Wl,-z,max-page-size=4096"
    )
    lent.rename(libraries / "libc++_shared.so")
    return Ndk(root, "27.0.0", "stub libraries of a test", "--ndk")


def test_symbols_of_the_system(toolbox: Toolbox, ndk: Ndk, newer_stubs: Path) -> None:
    source = "void *reallocarray(void); void *malloc(unsigned long); int f(void) { malloc(1); reallocarray(); return 1; }"
    library = toolbox.link("libnew.so", source, needs=(str(newer_stubs / "libc.so"),), api_level=21)
    assert "NDK 27.0.0" in judge(library, ndk=ndk, api_level=29).system_symbols
    assert only(judge(library, ndk=ndk, api_level=29)).verdict == OK
    file = only(judge(library, ndk=ndk, api_level=28))
    assert codes(file) == {"newer-symbols", "symbol-missing"} and file.symbols.missing == ("reallocarray",)
    assert "since API 29" in next(f.remedy for f in file.findings if f.code == "symbol-missing")
    unchecked = judge(library, api_level=29)
    assert only(unchecked).symbols.unchecked == 2 and "not checked: pass --ndk" in unchecked.system_symbols
    assert codes(only(judge(library))) == {"newer-symbols"}, "the version LIBC_Q tells without an NDK"


def test_a_library_that_the_ndk_lends(toolbox: Toolbox, ndk: Ndk) -> None:
    lent = ndk.bin.parent / "sysroot/usr/lib/aarch64-linux-android/libc++_shared.so"
    source = "int _Znwm(void); int f(void) { return _Znwm(); }"
    library = toolbox.link("libcxx.so", source, needs=("libc.so", str(lent)))
    report = judge(library, ndk=ndk)
    assert [(file.name, file.verdict) for file in report.files] == [
        ("libcxx.so", WARNING),
        ("libc++_shared.so", WARNING),
    ]
    assert codes(report.files[0]) == {"bring-along"} and codes(report.files[1]) == {"16-kb-pages"}
    assert [(row.name, row.source, row.needed_by) for row in report.deploy] == [
        ("libc++_shared.so", str(lent), ("libcxx.so",))
    ]
    with pytest.raises(BuildError, match="must be sent with it"):
        audit_made(library, PHONE, error=BuildError, api_level=28, ndk=ndk)


def test_a_prebuilt_library_of_the_ndk_with_small_pages_only_warns(
    toolbox: Toolbox, ndk: Ndk, caplog: pytest.LogCaptureFixture
) -> None:
    lent = ndk.bin.parent / "sysroot/usr/lib/aarch64-linux-android/libc++_shared.so"
    bundle = toolbox.directory / "bundle"
    toolbox.link("bundle/lib/libcxx.so", needs=("libc.so", str(lent)))
    (bundle / "lib/libc++_shared.so").write_bytes(lent.read_bytes())
    report = audit_made(bundle, PHONE, error=BuildError, api_level=28, ndk=ndk)
    assert len(report.files) == 2 and "libc++_shared.so" in caplog.text


def test_an_ndk_that_is_a_stand_in_builds_for_glibc(toolbox: Toolbox) -> None:
    """Judge where symbols are looked for as on Android, although the libraries are glibc's."""
    standin = Ndk(Path("/nowhere"), "27.0.0", "STAND-IN, not an Android NDK", "--ndk")
    system = toolbox.link("system/libc.so.6", "int puts(void) { return 1; }", needs=(), api_level=None)
    module = toolbox.link("mod.so", MODULE.replace("malloc(8)", "0"), needs=(str(system),), api_level=None)
    supplier = toolbox.link("libruntime.so", "int runtime_call(void) { return 1; }", needs=(), api_level=None)
    with pytest.raises(CompileError, match="runtime_call"):
        audit_made(module, PHONE, error=CompileError, api_level=28, ndk=standin, bundle=supplier.parent)
    with pytest.raises(CompileError, match="not for Android"):
        audit_made(module, PHONE, error=CompileError, api_level=28)


# Sets of files -------------------------------------------------------------------------------------


def test_a_file_beside_is_meant_before_one_elsewhere(toolbox: Toolbox) -> None:
    for directory, name in (("a", "one"), ("b", "two")):
        toolbox.link(f"{directory}/libsame.so", f"int {name}(void) {{ return 1; }}")
    source = "int two(void); int f(void) { return two(); }"
    toolbox.link("b/libuser.so", source, needs=("libc.so", str(toolbox.directory / "b/libsame.so")))
    report = judge(toolbox.directory)
    assert {file.name: file.verdict for file in report.files} == {
        "a/libsame.so": OK,
        "b/libsame.so": OK,
        "b/libuser.so": OK,
    }


def test_directories(toolbox: Toolbox, tmp_path: Path) -> None:
    with pytest.raises(PackageError, match="does not exist"):
        collect(tmp_path / "absent")
    top = tmp_path / "top"
    (top / "below").mkdir(parents=True)
    with pytest.raises(PackageError, match="no ELF file"):
        collect(top)
    (top / "readme").write_text("text")
    (top / "dangling").symlink_to("nowhere")
    (top / "loop").symlink_to(".")
    (top / "cut.so").write_bytes(toolbox.link("libgood.so").read_bytes()[:300])
    program_output("aarch64-linux-gnu-gcc", "-c", "-o", top / "object.o", "-xc", "/dev/null")
    (top / "below/libgood.so").write_bytes((toolbox.directory / "libgood.so").read_bytes())
    (top / "libgood.so.debug").write_bytes((toolbox.directory / "libgood.so").read_bytes())
    report = judge(top)
    assert [(file.name, file.verdict) for file in report.files] == [
        ("cut.so", REFUSED),
        ("below/libgood.so", OK),
    ]
    assert codes(report.files[0]) == {"not-elf"}
    assert codes(only(judge(top / "object.o"))) == {"not-linked"}
    assert codes(only(judge(top / "readme"))) == {"not-elf"}


def test_the_table_has_a_row_and_reasons_for_each_file(toolbox: Toolbox) -> None:
    module = toolbox.link("mod.so", MODULE, needs=("libc.so",))
    text = table(judge(module, runtime(toolbox)))
    assert "mod.so" in text and "libruntime.so" in text and "needs libc.so" in text
    assert "✗ symbol runtime_call" in text and "→ Link it with" in text and "r27d" in text


def test_paths_of_several_platforms_are_audited_apart(toolbox: Toolbox, tmp_path: Path) -> None:
    from adt.bundle.audit.auditing import audit_paths
    from adt.options.resolve import load_settings

    build = load_settings(environ={}).settings.build
    audited: Callable[..., ElfReport] = lambda *paths, **options: audit_paths(  # noqa: E731
        paths, **({"platform": None, "api_level": None, "settings": build} | options)
    )
    for name, platform in (("p1", "android-arm64-v8a"), ("p2", "linux-aarch64")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "mod.json").write_text(f'{{"target": {{"platform": "{platform}"}}}}')
        (tmp_path / name / "mod.so").write_bytes(toolbox.link("mod.so", api_level=26).read_bytes())
    assert audited(tmp_path / "p1").files[0].system == ANDROID
    assert codes(audited(tmp_path / "p2").files[0]) >= {"interpreter"}
    with pytest.raises(MismatchError, match="different platforms"):
        audited(tmp_path / "p1", tmp_path / "p2")
    names = [file.name for file in audited(tmp_path / "p1", tmp_path / "p2", platform=PHONE.name).files]
    assert names == ["p1/mod.so", "p2/mod.so"]
    assert audited(tmp_path / "p1").files[0].api_level == 26, "the file's own"
    assert audited(tmp_path / "p1", api_level=30).files[0].api_level == 30


def test_every_stand_in_library_is_a_public_one() -> None:
    from adt.bundle.audit.destination import PUBLIC

    assert set(LIBC) <= set(PUBLIC)


def test_every_reason_is_documented() -> None:
    """Compare the codes in the sources with those in docs/elf.md."""
    top = Path(__file__).parents[2]
    sources = "\n".join(p.read_text() for p in (top / "toolchain/adt/bundle/audit").glob("*.py"))
    used = set(
        re.findall(r'(?:Finding\(\s*(?:REFUSED|WARNING|verdict),|refused\()\s*"([a-z0-9-]+)"', sources)
    )
    table_of_reasons = (top / "docs/elf.md").read_text().split("## Reasons")[1].split("\n\n")[1]
    assert set(re.findall(r"`([a-z0-9-]+)`", table_of_reasons)) == used
