"""The key that an APK is signed with: the user's, or one of adt's own for trying things out.

No password is ever an argument of a program, where every user of the machine
could read it: it travels in the environment of the one program that needs it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from adt.errors import ConfigError, ProcessFailed
from adt.host import cache, process
from adt.host.directories import data_dir

STORE_PASSWORD, KEY_PASSWORD = "ADT_KEYSTORE_PASSWORD", "ADT_KEY_PASSWORD"
"""Variables with the user's passwords; also what apksigner and keytool are told to read."""
DEBUG_FILE = "debug.keystore"
DEBUG_ALIAS = "adt-debug"
DEBUG_PASSWORD = "android"
"""No secret: Android's own tools use the same for their debug keystores."""
DEBUG_OWNER = "CN=adt debug key, O=not for release"
DEBUG_DAYS = 10_000


@dataclass(frozen=True)
class Keystore:
    """A Java keystore (JKS or PKCS #12) with the key to sign with."""

    path: Path
    alias: str
    """Alias of the key; empty: the only one."""
    password: str = field(repr=False)
    key_password: str = field(default="", repr=False)
    """Password of the key; empty: the store's."""
    debug: bool = False
    """It is adt's own: fit for trying out, not for an app that is given away."""

    @property
    def environment(self) -> dict[str, str]:
        """Return the passwords, for the program that is told to read them there."""
        return {STORE_PASSWORD: self.password, KEY_PASSWORD: self.key_password or self.password}


def users_keystore(path: Path, alias: str, *, password: str, key_password: str) -> Keystore:
    """Return the user's own keystore; raises ConfigError if there is no file, or no password for it."""
    if not path.is_file():
        raise ConfigError(
            f"there is no keystore {path}",
            remedy=f"Make one: keytool -genkeypair -keystore {path} -alias NAME -keyalg RSA -keysize 4096 "
            "-validity 10000; or leave --keystore out to sign with a debug key.",
        )
    if not password:
        raise ConfigError(
            f"the password of {path} is not known",
            remedy=f"Put it into {STORE_PASSWORD}, or use --keystore-password-file FILE.",
        )
    return Keystore(path, alias, password, key_password)


def debug_keystore() -> Keystore:
    """Return adt's own key, made on first use and kept: a newer APK can replace an older one on a device."""
    path = data_dir() / DEBUG_FILE
    keystore = Keystore(path, DEBUG_ALIAS, DEBUG_PASSWORD, debug=True)
    with cache.lock(path):
        if not path.is_file():
            _make(keystore)
    return keystore


def _make(keystore: Keystore) -> None:
    keytool = process.find_tool(
        "keytool", remedy="Install Java: apt-get install default-jre-headless; apksigner needs it too."
    )
    with cache.fresh_file(keystore.path) as temporary:
        words = ["-storetype", "PKCS12", "-storepass:env", STORE_PASSWORD, "-alias", keystore.alias]
        words += ["-keyalg", "RSA", "-keysize", "2048", "-validity", str(DEBUG_DAYS)]
        process.run(
            [keytool.path, "-genkeypair", "-keystore", temporary, *words, "-dname", DEBUG_OWNER],
            env=keystore.environment,
            error=ProcessFailed,
            what="keytool cannot make a debug key",
            remedy="Try `keytool -help`; a broken Java installation must be mended first.",
        )
        temporary.chmod(0o600)
