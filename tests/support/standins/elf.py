"""ELF files that the tests link with Debian's cross GCC, and bytes patched in them.

``Toolbox`` imitates what the NDK's linker driver does: libraries named
``libc.so`` with versioned symbols to link against (stand-ins, empty of code),
the NDK's note, 16 KB pages.
"""

from pathlib import Path

from elftools.elf.elffile import ELFFile

from support.devices.programs import program_output as run

GCC = "aarch64-linux-gnu-gcc"
PAGES = "-Wl,-z,max-page-size=16384,-z,separate-code"
LIBC = {
    "libc.so": (["malloc", "free", "memcpy", "__cxa_finalize"], "LIBC"),
    "libm.so": (["sinf"], "LIBC"),
    "libdl.so": (["dlopen"], "LIBC"),
    "liblog.so": (["__android_log_print"], ""),
}
NEWER = {"libc.so": "reallocarray"}
"""Library to a symbol that only stubs of API level 29 and newer have, version LIBC_Q."""


def note(api_level: int, ndk: str = "r27d", build: str = "13750724") -> str:
    """Return the assembler text of the note that the NDK's crtbegin leaves."""
    return f"""
    .section .note.android.ident,"a",%note
    .balign 4
    .long 8, 132, 1
    .asciz "Android"
    .long {api_level}
    .ascii "{ndk}"
    .zero {64 - len(ndk)}
    .ascii "{build}"
    .zero {64 - len(build)}
    .section .note.GNU-stack,"",%progbits
    .text
    """


class Toolbox:
    """Links small libraries and programs in one directory."""

    def __init__(self, directory: Path, stubs: Path) -> None:
        """Take the *stubs* that :func:`stub_libraries` wrote."""
        self.directory = directory
        self.stubs = stubs

    def link(
        self,
        name: str,
        source: str = "int f(void) { return 1; }",
        *flags: str,
        needs: tuple[str, ...] = ("libc.so",),
        shared: bool = True,
        api_level: int | None = 28,
        pages: str = PAGES,
        gcc: str = GCC,
    ) -> Path:
        """Link *source* to the file *name*; *needs* are named in DT_NEEDED whatever is used."""
        output = self.directory / name
        output.parent.mkdir(parents=True, exist_ok=True)
        code = output.with_suffix(".c")
        code.write_text(source + (f"\n__asm__({_c_string(note(api_level))});" if api_level else ""))
        libraries = [str(self.stubs / lib) if (self.stubs / lib).is_file() else lib for lib in needs]
        kind = ["-shared", f"-Wl,-soname,{output.name}"] if shared else []
        words: list[object] = [
            gcc,
            "-nostdlib",
            "-fPIC",
            "-O1",
            "-fno-stack-protector",
            "-fno-builtin",
            "-o",
            output,
            code,
            *kind,
            pages,
        ]
        run(*words, "-Wl,--no-as-needed,--hash-style=both,--build-id", *libraries, *flags)
        code.unlink()
        return output

    def program(self, name: str, source: str, *flags: str, needs: tuple[str, ...] = ("libc.so",)) -> Path:
        """Link a position-independent program that asks for Android's dynamic linker."""
        linker = "-Wl,--dynamic-linker=/system/bin/linker64"
        return self.link(name, source, "-pie", linker, *flags, needs=needs, shared=False)


def _c_string(text: str) -> str:
    lines = text.replace("\\", "\\\\").replace('"', '\\"').splitlines()
    return " ".join(f'"{line}\\n"' for line in lines)


def stub_libraries(directory: Path, *, newer: bool) -> Path:
    """Compile stand-ins for the NDK's stub libraries; *newer*: with the symbols of API level 29."""
    directory.mkdir(parents=True)
    for name, (symbols, version) in LIBC.items():
        code, script = directory / "stub.c", directory / "stub.map"
        extra = NEWER.get(name, "") if newer else ""
        code.write_text(
            "".join(f"void {symbol}(void) {{}}\n" for symbol in [*symbols, *filter(None, [extra])])
        )
        script.write_text(
            (f"{version} {{ global: {'; '.join(symbols)}; }};\n" if version else "")
            + (f"LIBC_Q {{ global: {extra}; }} {version};\n" if extra else "")
        )
        versions = [f"-Wl,--version-script={script}"] if version else []
        flags = ["-shared", "-fno-builtin", "-w", f"-Wl,-soname,{name}", *versions]
        run(GCC, "-nostdlib", "-fPIC", *flags, "-o", directory / name, code)
        code.unlink()
        script.unlink()
    return directory


def patched(source: Path, target: Path, changes: dict[int, bytes]) -> Path:
    contents = bytearray(source.read_bytes())
    for offset, new in changes.items():
        contents[offset : offset + len(new)] = new
    target.write_bytes(contents)
    return target


def header_offset(path: Path, kind: str, field: str, *, which: int = 0) -> int:
    """Return the file offset of a field of program header number *which* of *kind*, by pyelftools."""
    fields = {
        "p_type": 0,
        "p_flags": 4,
        "p_offset": 8,
        "p_vaddr": 16,
        "p_filesz": 32,
        "p_memsz": 40,
        "p_align": 48,
    }
    with path.open("rb") as file:
        elf = ELFFile(file)
        indices = [index for index, segment in enumerate(elf.iter_segments()) if segment["p_type"] == kind]
        return int(elf["e_phoff"]) + int(elf["e_phentsize"]) * indices[which] + fields[field]


def dynamic_offset(path: Path, tag: str) -> int:
    """Return the file offset of the entry *tag* of the dynamic section, by pyelftools."""
    with path.open("rb") as file:
        elf = ELFFile(file)
        section = elf.get_section_by_name(".dynamic")
        for index, entry in enumerate(section.iter_tags()):
            if entry.entry.d_tag == tag:
                return int(section["sh_offset"]) + 16 * index
    raise AssertionError(f"{path} has no {tag}")
