"""From a host's apt sources to arm64 ones."""

from pathlib import Path

import pytest

from adt.errors import DownloadError
from adt.virtual import packages
from adt.virtual.abis import ARM64
from adt.virtual.packages import Source, for_device, parse_deb822, parse_one_line

DEBIAN = {"ID": "debian", "VERSION_CODENAME": "bookworm"}
UBUNTU = {"ID": "ubuntu", "VERSION_CODENAME": "noble"}

DEBIAN_SOURCES = """\
Types: deb deb-src
# a comment
URIs: http://mirror.test/debian
Suites: bookworm bookworm-updates
Components: main contrib
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb
URIs: http://mirror.test/debian-security
Suites: bookworm-security
Components: main
Architectures: amd64

Enabled: no
Types: deb
URIs: http://mirror.test/debian
Suites: bookworm-backports
Components: main
"""

THIRD_PARTIES = """\
deb [arch=amd64 signed-by=/etc/apt/keyrings/docker.asc] https://docker.test/linux/debian bookworm stable
deb [arch=amd64,arm64] https://packages.test/debian/12/prod bookworm main
deb https://sdk.test/apt cloud-sdk-bookworm main
deb-src http://mirror.test/debian bookworm main
# deb http://mirror.test/debian bookworm main
"""

UBUNTU_SOURCES = """\
Types: deb
URIs: http://de.archive.ubuntu.com/ubuntu/
Suites: noble noble-updates noble-backports
Components: main restricted universe multiverse
Signed-By: /usr/share/keyrings/ubuntu-archive-keyring.gpg

Types: deb
URIs: http://security.ubuntu.com/ubuntu/
Suites: noble-security
Components: main universe
Signed-By: /usr/share/keyrings/ubuntu-archive-keyring.gpg
"""


def test_debian_keeps_its_own_archives_and_drops_third_parties() -> None:
    files = {"/a/debian.sources": DEBIAN_SOURCES, "/a/third.list": THIRD_PARTIES}
    repos = for_device(files, DEBIAN, native=False)
    assert [(source.uri, source.suite, source.components) for source in repos] == [
        ("http://mirror.test/debian", "bookworm", ("main",)),
        ("http://mirror.test/debian", "bookworm-updates", ("main",)),
        ("http://mirror.test/debian-security", "bookworm-security", ("main",)),
    ]
    assert repos[0].signed_by == "/usr/share/keyrings/debian-archive-keyring.gpg"
    assert "Architectures: arm64\n" in repos[2].stanza("arm64") and "amd64" not in repos[2].stanza("arm64")


def test_one_line_sources() -> None:
    text = (
        "deb [ arch=amd64 trusted=yes signed-by=/k.gpg ] http://m.test/debian/ bookworm main non-free # why\n"
    )
    (source,) = parse_one_line(text)
    assert source == Source(
        "http://m.test/debian/", "bookworm", ("main", "non-free"), "/k.gpg", (("Trusted", "yes"),)
    )
    assert "Trusted: yes\n" in source.stanza("arm64")


def test_dated_snapshot_of_the_archive_counts() -> None:
    line = "deb http://snap.test/archive/debian/20250520T000000Z bookworm main"
    assert len(for_device({"x.list": line}, DEBIAN, native=False)) == 1


def test_key_inside_a_stanza_is_kept() -> None:
    text = "Types: deb\nURIs: http://m.test/debian\nSuites: bookworm\nComponents: main\n"
    text += "Signed-By:\n -----BEGIN\n .\n abc\n"
    (source,) = parse_deb822(text)
    assert "Signed-By: \n -----BEGIN\n .\n abc\n" in source.stanza("arm64")


def test_ubuntu_goes_to_the_ports_archive() -> None:
    repos = for_device({"u.sources": UBUNTU_SOURCES}, UBUNTU, native=False)
    assert {source.uri for source in repos} == {"http://ports.ubuntu.com/ubuntu-ports/"}
    assert [source.suite for source in repos] == ["noble", "noble-updates", "noble-security"]
    assert repos[0].components == ("main", "universe")
    on_arm = for_device({"u.sources": UBUNTU_SOURCES}, UBUNTU, native=True)
    assert on_arm[0].uri == "http://de.archive.ubuntu.com/ubuntu/"


@pytest.mark.parametrize(
    ("uri", "twin"),
    [
        ("https://mirror.test/pub/ubuntu/", "https://mirror.test/pub/ubuntu-ports/"),
        ("http://mirror.test/ubuntu", "http://mirror.test/ubuntu-ports/"),
        ("mirror+file:/etc/apt/apt-mirrors.txt", "http://ports.ubuntu.com/ubuntu-ports/"),
        ("http://ports.ubuntu.com/ubuntu-ports", "http://ports.ubuntu.com/ubuntu-ports"),
    ],
)
def test_ubuntu_mirrors(uri: str, twin: str) -> None:
    (source,) = for_device({"u.list": f"deb {uri} noble main"}, UBUNTU, native=False)
    assert source.uri == twin


def test_source_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(packages.VARIABLE, "deb http://m.test/debian trixie main")
    assert [source.suite for source in packages.host_sources(ARM64)] == ["trixie"]
    monkeypatch.setenv(packages.VARIABLE, "http://m.test/debian")
    with pytest.raises(DownloadError, match="not a one-line deb source") as caught:
        packages.host_sources(ARM64)
    assert "deb [signed-by" in caught.value.remedy


def fake_apt(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> tuple[packages.PrivateApt, list[str]]:
    """Return a PrivateApt that runs nothing and offers two packages."""
    monkeypatch.setattr(packages.PrivateApt, "_configuration", lambda self: "")
    apt = packages.PrivateApt(tmp_path / "apt", [], "arm64")
    ran: list[str] = []
    monkeypatch.setattr(apt, "_run", lambda *argv, what: ran.extend(argv))
    monkeypatch.setattr(apt, "offered", lambda names: {"libc6": ["2.41-1", "2.36-9"], "mksh": ["60"]})
    return apt, ran


def test_known_version_is_taken_and_a_newer_one_is_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    apt, ran = fake_apt(monkeypatch, tmp_path)
    with caplog.at_level("INFO"):
        apt.download(["libc6", "mksh"], {"libc6": "2.36-9", "mksh": "59c", "gone": "1"})
    assert ran[-2:] == ["libc6=2.36-9", "mksh"]
    assert "mksh 60 is taken" in caplog.text and "59c" in caplog.text


def test_package_that_the_archive_lacks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    apt, _ = fake_apt(monkeypatch, tmp_path)
    with pytest.raises(DownloadError, match="no arm64 package toybox"):
        apt.download(["libc6", "toybox"], {})
