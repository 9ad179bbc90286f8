"""Reading ELF files: what binutils says of the same file, and files that lie."""

import random
import re
import struct
import time
import tracemalloc
from pathlib import Path

import pytest

from adt.errors import PackageError
from adt.host.elf import Damaged, Import, parse_elf, read_elf
from support.devices.programs import program_output
from support.standins.elf import Toolbox, dynamic_offset, header_offset, patched, stub_libraries

SOURCE = """
extern int sinf(int); extern int memcpy(int); extern int other_function(int);
__attribute__((weak)) extern int maybe(void);
int exported = 1;
static int hidden_one;
__attribute__((visibility("hidden"))) int hidden_two;
int f(void) { return sinf(1) + memcpy(2) + other_function(3) + (maybe ? maybe() : 0) + hidden_one; }
"""


@pytest.fixture(scope="session")
def toolbox(tmp_path_factory: pytest.TempPathFactory) -> Toolbox:
    directory = tmp_path_factory.mktemp("elf")
    return Toolbox(directory, stub_libraries(directory / "stubs", newer=False))


@pytest.fixture(scope="session")
def library(toolbox: Toolbox) -> Path:
    flags = ("-Wl,-rpath,$ORIGIN/../lib", "-Wl,--enable-new-dtags", "-Wl,-z,now")
    return toolbox.link("libgood.so", SOURCE, *flags, needs=("libm.so", "libc.so"))


def test_facts_are_those_of_readelf(library: Path) -> None:
    facts = read_elf(library)
    listing = program_output("readelf", "-dlnW", library)
    assert list(facts.needed) == re.findall(r"\(NEEDED\).*\[(.*)\]", listing) == ["libm.so", "libc.so"]
    aligns = [int(line.split()[-1], 16) for line in listing.splitlines() if line.startswith("  LOAD")]
    assert [segment.align for segment in facts.loads] == aligns
    assert facts.page_alignment == 16384
    assert f"[{facts.soname}]" in listing and f"[{facts.runpath}]" in listing and facts.build_id in listing
    assert (facts.soname, facts.runpath, facts.rpath) == ("libgood.so", "$ORIGIN/../lib", "")
    assert facts.bind_now and facts.flags_1 == ("NOW",) and facts.hash_tables == {"gnu", "sysv"}
    assert (facts.machine, facts.bits, facts.type, facts.program) == ("AARCH64", 64, "DYN", False)
    assert facts.android and vars(facts.android) == {"api_level": 28, "ndk": "r27d", "ndk_build": "13750724"}
    assert facts.executable_stack is False and not facts.text_relocations
    assert facts.symbol_table and not facts.debug_info


def test_symbols_with_their_versions(library: Path, toolbox: Toolbox) -> None:
    facts = read_elf(library)
    assert set(facts.imports) == {
        Import("sinf", "LIBC", "libm.so", weak=False),
        Import("memcpy", "LIBC", "libc.so", weak=False),
        Import("other_function", "", "", weak=False),
        Import("maybe", "", "", weak=True),
    }
    assert facts.undefined == {"sinf", "memcpy", "other_function"}
    assert facts.functions == {"f"} and facts.objects == {"exported"}
    stub = read_elf(toolbox.stubs / "libc.so")
    assert stub.exports["malloc"] == {"LIBC"} and stub.versions == {"LIBC"}
    assert stub.supplies(Import("malloc", "LIBC", "libc.so", weak=False))
    assert stub.supplies(Import("malloc", "", "", weak=False))
    assert not stub.supplies(Import("malloc", "LIBC_Q", "libc.so", weak=False))
    assert facts.supplies(Import("f", "ANY", "", weak=False)), "a file without versions answers to each"


def test_stripped_or_not(library: Path, toolbox: Toolbox) -> None:
    debug = toolbox.link("libdebug.so", SOURCE, "-g", needs=("libm.so", "libc.so"))
    assert read_elf(debug).debug_info
    program_output("aarch64-linux-gnu-strip", debug)
    assert not read_elf(debug).debug_info and not read_elf(debug).symbol_table


def test_without_section_headers_the_symbols_come_from_the_hash_tables(library: Path, tmp_path: Path) -> None:
    bare = patched(library, tmp_path / "bare.so", {0x28: bytes(8), 0x3A: bytes(6)})
    expected, facts = read_elf(library), read_elf(bare)
    assert not facts.section_headers
    assert (facts.imports, facts.exports) == (expected.imports, expected.exports)
    no_sysv = dynamic_offset(library, "DT_HASH")
    gnu_only = patched(bare, tmp_path / "gnu.so", {no_sysv: struct.pack("<Q", 0x6FFFFDF8)})
    assert read_elf(gnu_only).hash_tables == {"gnu"}
    assert read_elf(gnu_only).exports == expected.exports
    assert set(read_elf(gnu_only).imports) == set(expected.imports)


def test_32_bits(toolbox: Toolbox) -> None:
    flags = ("-m32", "-Wl,-z,notext")
    small = toolbox.link("lib32.so", "int f(void) { return 1; }", *flags, needs=(), api_level=None, gcc="gcc")
    facts = read_elf(small)
    assert (facts.machine, facts.bits, facts.soname) == ("386", 32, "lib32.so")
    assert facts.functions == {"f"} and facts.build_id in program_output("readelf", "-nW", small)


def test_big_endian() -> None:
    ident = b"\x7fELF\x02\x02\x01" + bytes(9)
    header = struct.pack(">HHIQQQIHHHHHH", 2, 22, 1, 0x1000, 64, 0, 0, 64, 56, 1, 64, 0, 0)
    load = struct.pack(">IIQQQQQQ", 1, 5, 0, 0x10000, 0x10000, 120, 120, 0x1000)
    facts = parse_elf(ident + header + load)
    assert (facts.machine, facts.type, facts.program) == ("S390", "EXEC", True)
    assert facts.page_alignment == 0x1000


@pytest.mark.parametrize("contents", [b"", b"\x7fELF", b"no ELF file at all", b"\x7fELF" + b"\xff" * 5000])
def test_what_is_no_elf_file(contents: bytes, tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(contents)
    with pytest.raises(PackageError, match="not a whole ELF file"):
        read_elf(tmp_path / "x")


def test_every_way_to_cut_it_short(library: Path) -> None:
    whole = library.read_bytes()
    for length in [*range(0, len(whole), 97), len(whole) - 1]:
        with pytest.raises(Damaged):
            parse_elf(whole[:length])


HUGE = 0x7FFFFFFFFFFFFFF0
SECTION_HEADERS = {
    "shoff": {0x28: struct.pack("<Q", HUGE)},
    "shentsize 0": {0x3A: b"\0\0"},
    "shnum": {0x3C: b"\xff\xff"},
    "shstrndx": {0x3E: b"\xff\xff"},
    "phoff": {0x20: struct.pack("<Q", HUGE)},
    "phnum": {0x38: b"\xff\xff"},
    "phentsize": {0x36: b"\x01\0"},
}


@pytest.mark.parametrize("name", SECTION_HEADERS)
def test_tables_that_lie(name: str, library: Path, tmp_path: Path) -> None:
    with pytest.raises(PackageError, match="not a whole ELF file"):
        read_elf(patched(library, tmp_path / "x", SECTION_HEADERS[name]))


@pytest.mark.parametrize(
    "tag", ["DT_VERNEEDNUM", "DT_STRSZ", "DT_STRTAB", "DT_SYMTAB", "DT_VERSYM", "DT_NEEDED"]
)
def test_a_dynamic_section_that_lies(tag: str, library: Path, tmp_path: Path) -> None:
    """End a huge count with the list itself, and refuse a huge offset or size."""
    place = dynamic_offset(library, tag) + 8
    lying = patched(library, tmp_path / "x", {place: struct.pack("<Q", HUGE)})
    if tag == "DT_VERNEEDNUM":
        assert read_elf(lying).imports == read_elf(library).imports
    else:
        with pytest.raises(PackageError, match="not a whole ELF file"):
            read_elf(lying)


def _section_field(library: Path, name: str, field: int) -> int:
    from elftools.elf.elffile import ELFFile

    with library.open("rb") as file:
        elf = ELFFile(file)
        return int(elf["e_shoff"]) + 64 * elf.get_section_index(name) + field


@pytest.mark.parametrize("name", [".dynsym", ".note.android.ident", ".symtab"])
def test_a_section_with_a_huge_size_costs_nothing(name: str, library: Path, tmp_path: Path) -> None:
    lying = patched(library, tmp_path / "x", {_section_field(library, name, 32): struct.pack("<Q", HUGE)})
    tracemalloc.start()
    try:
        read_elf(lying)
    except PackageError as error:
        assert name == ".dynsym", error
    else:
        assert name != ".dynsym"
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 64 << 20


def crafted(tags: dict[int, bytes | int]) -> bytes:
    """Create a library of one LOAD segment, without section headers, with bytes that its entries point to."""
    at = 64 + 2 * 56 + 16 * (len(tags) + 1)
    entries, tables = b"", b""
    for tag, value in tags.items():
        place = value if isinstance(value, int) else at + len(tables)
        tables += b"" if isinstance(value, int) else value
        entries += struct.pack("<qQ", tag, place)
    size = at + len(tables)
    header = struct.pack("<HHIQQQIHHHHHH", 3, 183, 1, 0, 64, 0, 0, 64, 56, 2, 64, 0, 0)
    load = struct.pack("<IIQQQQQQ", 1, 5, 0, 0, 0, size, size, 0x4000)
    dynamic = struct.pack("<IIQQQQQQ", 2, 4, 176, 176, 176, at - 176, at - 176, 8)
    return b"\x7fELF\x02\x01\x01" + bytes(9) + header + load + dynamic + entries + bytes(16) + tables


STRTAB, SYMTAB, STRSZ, HASH, GNU_HASH = 5, 6, 10, 4, 0x6FFFFEF5
VERSYM, VERNEED, VERNEEDNUM = 0x6FFFFFF0, 0x6FFFFFFE, 0x6FFFFFFF


def symbols(count: int) -> bytes:
    """Return symbols whose names begin one byte apart."""
    return b"".join(struct.pack("<IBBHQQ", 1 + i, 0x12, 0, 0, 0, 0) for i in range(count))


def test_a_crafted_file_is_read() -> None:
    names = b"\0abc\0"
    facts = parse_elf(
        crafted({STRTAB: names, STRSZ: len(names), SYMTAB: symbols(2), HASH: struct.pack("<II", 1, 2)})
    )
    assert {symbol.name for symbol in facts.imports} == {"abc", "bc"}


@pytest.mark.parametrize(
    ("names", "message"),
    [(b"a" * (1 << 20), "no end"), ((b"a" * 8000 + b"\0") * 130, "times its size")],
)
def test_names_that_overlap(names: bytes, message: str) -> None:
    """Read tens of thousands of names within one another without adding them up."""
    count = 1 << 16
    tables: dict[int, bytes | int] = {STRTAB: names, STRSZ: len(names), SYMTAB: symbols(count)}
    with pytest.raises(Damaged, match=message):
        parse_elf(crafted(tables | {HASH: struct.pack("<II", 1, count)}))


def test_version_lists_within_one_another() -> None:
    """Read 65535 entries, each with a list of all the others."""
    lists = struct.pack("<HHIII", 1, 0xFFFF, 1, 16, 16) * 0xFFFF
    names = b"\0" + b"abc\0" * 8
    tables: dict[int, bytes | int] = {STRTAB: names, STRSZ: len(names), SYMTAB: symbols(2)}
    tables |= {HASH: struct.pack("<II", 1, 2), VERSYM: bytes(4), VERNEED: lists, VERNEEDNUM: 0xFFFF}
    with pytest.raises(Damaged, match="symbol versions"):
        parse_elf(crafted(tables))


def test_a_hash_chain_without_an_end() -> None:
    chain = struct.pack("<IIII", 1, 1, 0, 0) + struct.pack("<I", 1) + bytes(4 << 20)
    tables: dict[int, bytes | int] = {STRTAB: b"\0", STRSZ: 1, SYMTAB: symbols(2), GNU_HASH: chain}
    with pytest.raises(Damaged):
        parse_elf(crafted(tables))
    for count in (0xFFFFFFFF, 1 << 28):
        tables[GNU_HASH] = struct.pack("<IIII", count, 1, 0, 0)
        with pytest.raises(Damaged):
            parse_elf(crafted(tables))


def test_notes_that_claim_the_whole_file() -> None:
    """Read 60,000 segments of 16 bytes, each a note that claims 1 MiB: 60 GB if all were read."""
    count, note = 60_000, struct.pack("<III4s", 4, 1 << 20, 1, b"abc")
    tables = 64 + 56 * count
    header = struct.pack("<HHIQQQIHHHHHH", 3, 183, 1, 0, 64, 0, 0, 64, 56, count, 64, 0, 0)
    segments = (struct.pack("<IIQQQQQQ", 4, 4, tables + 16 * i, 0, 0, 16, 16, 4) for i in range(count))
    contents = b"\x7fELF\x02\x01\x01" + bytes(9) + header + b"".join(segments) + note * count
    began = time.process_time()
    with pytest.raises(Damaged, match="too many fields"):
        parse_elf(contents + bytes(1 << 20))
    assert time.process_time() - began < 30


def test_random_damage_is_refused_or_read(library: Path) -> None:
    """Answer with facts or Damaged whatever bytes change: no other exception, no endless loop."""
    whole = library.read_bytes()
    headers = [*range(64 + 56 * 9), *range(0x40, 0x800)]
    chance = random.Random(7)
    refused = 0
    for _ in range(1500):
        contents = bytearray(whole)
        for _ in range(chance.randint(1, 8)):
            at = chance.choice(headers) if chance.random() < 0.7 else chance.randrange(len(whole))
            contents[at] = chance.choice((0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)))
        try:
            parse_elf(bytes(contents))
        except Damaged:
            refused += 1
    assert 100 < refused < 1500


def test_names_cannot_drive_a_terminal(library: Path, tmp_path: Path) -> None:
    contents = library.read_bytes()
    at = contents.index(b"libm.so\0")
    lying = patched(library, tmp_path / "x", {at: b"\x1b[2J\x07x\n"})
    assert all(name.isprintable() for name in read_elf(lying).needed)


def test_alignment_is_read_from_the_header_itself(library: Path, tmp_path: Path) -> None:
    at = header_offset(library, "PT_LOAD", "p_align", which=1)
    facts = read_elf(patched(library, tmp_path / "x", {at: struct.pack("<Q", 4096)}))
    assert facts.page_alignment == 4096 and facts.loads[0].align == 16384
