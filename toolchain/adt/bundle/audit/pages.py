"""Page sizes: those that kernels have, and those that a file's segments can be mapped with."""

from __future__ import annotations

from adt.bundle.audit.destination import ANDROID, GLIBC, KERNEL
from adt.host.elf import ElfFacts
from adt.host.elf_image import PF_W

PAGE_SIZES = (4096, 16384, 65536)
LARGE_PAGES = 16384
"""Bytes of a page on some devices with Android 15 and newer, and on the Raspberry Pi 5."""
LARGE_PAGE_MACHINES = {ANDROID: ("AARCH64", "X86_64"), GLIBC: ("AARCH64",), KERNEL: ("AARCH64",)}
"""System to the machines of which there are kernels with pages of 16 KB."""


def may_have_large_pages(machine: str, system: str) -> bool:
    """True if *machine* with *system* is of a kind that can have pages of 16 KB."""
    return machine in LARGE_PAGE_MACHINES.get(system, ())


def page_sizes(facts: ElfFacts, *, bionic: bool) -> tuple[int, ...]:
    """Page sizes in bytes that the segments fit, of :data:`PAGE_SIZES`."""
    return tuple(page for page in PAGE_SIZES if not obstacle(facts, page, bionic=bionic))


def obstacle(facts: ElfFacts, page: int, *, bionic: bool) -> str:
    """Return why the segments cannot be mapped with pages of *page* bytes; empty if they can.

    Args:
        bionic: the dynamic linker rounds the end of RELRO up, and so makes data read-only
            that shares its last page; glibc's rounds it down.
    """
    last_page = -1
    for load in facts.loads:
        if load.align & (load.align - 1):
            return f"a LOAD segment has p_align {load.align}, which is no power of two"
        if max(load.align, 1) < page:
            return f"a LOAD segment has p_align {load.align}, less than a page of {page}"
        if (load.vaddr - load.offset) % page:
            return f"a LOAD segment's address and its place in the file differ by no multiple of {page}"
        if load.vaddr // page <= last_page and load.memsz:
            return f"two LOAD segments share a page of {page}"
        last_page = (load.end - 1) // page
    if bionic and facts.relro and (end := facts.relro.end) % page:
        for load in facts.loads:
            if load.flags & PF_W and load.vaddr <= end < load.end:
                return f"RELRO ends at {end:#x} inside a page of {page} that holds writable data too"
    return ""
