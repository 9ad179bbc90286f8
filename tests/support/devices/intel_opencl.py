"""Intel's OpenCL for processors: a driver that computes in half precision, which Debian's PoCL 3.1 does not.

The wheels of the package index are fetched by sha256 and never installed: their libraries are unpacked into
adt's cache (420 MB), where they find each other. It is for tests on this machine and goes nowhere else. Seen to
compute in half precision on a processor with AVX-512 FP16; whether it does on older ones has not been tried.
"""

import re
import shutil
import zipfile
from pathlib import Path

from adt.host import cache, download
from adt.host.download import RegistryFile

_WHEELS = (
    RegistryFile(
        "intel-opencl-rt",
        "intel_opencl_rt-2026.2.0-py2.py3-none-manylinux_2_28_x86_64.whl",
        "6b6215a420598b4999ee01caca6d5cbe106aa4155c46c52377619c5aafce9f67",
    ),
    RegistryFile(  # the first one's libimf, libsvml, libirng and libintlc, which it does not ask for
        "intel-cmplr-lib-rt",
        "intel_cmplr_lib_rt-2026.2.0-py2.py3-none-manylinux_2_28_x86_64.whl",
        "9f713083073a820d2496a6da8e8d4f3482aba6640f74521d25ea48dcebe72748",
    ),
    RegistryFile(
        "tbb",
        "tbb-2023.2.0-py2.py3-none-manylinux_2_28_x86_64.whl",
        "7d80615b6e970f11671fa05b6eaa9483ac864fbfe525ac280271a78b37870b7c",
    ),
)
_WANTED = re.compile(
    r".*/lib/(libintelocl\.so|libcommon_clang\.so\.[\d.]+|clbltfn\w+\.rtl|cllibrary\w*\.(?:o|rtl)|libocl_svml_\w+\.so"
    r"|cl\.cfg|libtbb\.so\.12|libtbbmalloc\.so\.2|libsvml\.so|libimf\.so|libirng\.so|libintlc\.so\.5)"
)


def vendors() -> Path:
    """Return the value of OCL_ICD_VENDORS for which the OpenCL loader finds this driver alone.

    Raises:
        DownloadError: a wheel cannot be had, or has another sha256.
    """
    path, _ = cache.entry(f"tests/intel-opencl-{_WHEELS[0].sha256[:12]}", _unpack)
    return path / "vendors"


def _unpack(directory: Path) -> None:
    libraries = directory / "lib"
    libraries.mkdir()
    for wheel in _WHEELS:
        with zipfile.ZipFile(download.fetch(wheel)) as archive:
            for name in archive.namelist():
                if match := _WANTED.fullmatch(name):
                    with archive.open(name) as packed, (libraries / match[1]).open("wb") as out:
                        shutil.copyfileobj(packed, out)
    (directory / "vendors").mkdir()
    # The final place: the directory is renamed when it is complete.
    final = cache.cache_dir() / f"tests/intel-opencl-{_WHEELS[0].sha256[:12]}"
    (directory / "vendors/intel.icd").write_text(f"{final}/lib/libintelocl.so\n")
