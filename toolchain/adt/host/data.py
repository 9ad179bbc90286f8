"""Where adt keeps what cannot be made again.

``$ADT_DATA_DIR`` > ``$XDG_DATA_HOME/adt`` > ``~/.local/share/adt``.
"""

from __future__ import annotations

import os
from pathlib import Path


def data_dir() -> Path:
    """The directory of what was measured; nothing of it can be made again."""
    if explicit := os.environ.get("ADT_DATA_DIR"):
        return Path(explicit).expanduser().absolute()
    base = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
    return Path(base).expanduser().absolute() / "adt"
