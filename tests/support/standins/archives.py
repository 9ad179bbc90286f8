"""Archives with entries that a test makes up."""

import io
import tarfile
import zipfile
from collections.abc import Mapping


def tar_entry(name: str, **facts: object) -> tarfile.TarInfo:
    """Return an entry *name* of an archive, with *facts* such as its type or mode."""
    info = tarfile.TarInfo(name)
    for key, value in facts.items():
        setattr(info, key, value)
    return info


def tar_bytes(*members: tuple[tarfile.TarInfo, bytes], mode: str = "w") -> bytes:
    """Return an archive, which *mode* compresses, of entries and their contents."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode=mode, format=tarfile.PAX_FORMAT) as tar:
        for info, data in members:
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return packed.getvalue()


def zip_bytes(members: Mapping[str, bytes]) -> bytes:
    """Return a zip archive of *members*."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return packed.getvalue()
