"""The watch over listening sockets sees what it must see."""

import socket
import subprocess
import sys

from support.devices.listeners import MARK, TABLES, ListenerWatch, parse, reachable

LISTEN = "import socket,sys; s=socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1], flush=True); sys.stdin.read()"


def test_it_sees_this_process_and_what_carries_the_mark() -> None:
    watch = ListenerWatch()
    with (
        socket.create_server(("127.0.0.1", 0)) as own,
        subprocess.Popen(
            [sys.executable, "-c", LISTEN],
            env={MARK: watch.mark},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            text=True,
        ) as marked,
        subprocess.Popen(
            [sys.executable, "-c", LISTEN], env={}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as foreign,
    ):
        assert marked.stdout and foreign.stdout
        ports = [own.getsockname()[1], int(marked.stdout.readline()), int(foreign.stdout.readline())]
        watch.look()
        marked.communicate("")
        foreign.communicate("")
    assert [f"127.0.0.1:{port}" in watch.seen for port in ports] == [True, True, False]
    assert not watch.abroad


def test_an_address_that_others_can_reach_is_abroad() -> None:
    row = 'tcp LISTEN 0 128 {} 0.0.0.0:* users:(("adb",pid=7,fd=3))'
    watch = ListenerWatch()
    for address in ("0.0.0.0:5037", "*:9190", "[::]:80", "192.168.1.2:1", "127.0.0.1:5037", "[::1]:9190"):
        assert parse(row.format(address)) == {(address, 7)}
        watch.seen[address] = "adb"
    assert sorted(watch.abroad) == ["*:9190", "0.0.0.0:5037", "192.168.1.2:1", "[::]:80"]


def test_the_run_is_watched(listeners: ListenerWatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as own:
        listeners.look()
        assert f"127.0.0.1:{own.getsockname()[1]}" in listeners.seen


def test_the_tables_tell_what_others_can_reach() -> None:
    """Read local addresses in the kernel's byte order; skip sockets with a peer."""
    nobody, everybody = "00000000", "0" * 32
    rows = [
        ("00000000:1F90", f"{nobody}:0000", True),
        ("0201A8C0:1F90", f"{nobody}:0000", True),
        ("0100007F:1F90", f"{nobody}:0000", False),
        ("0201A8C0:1F90", "0301A8C0:D431", False),
        (f"{everybody}:1F90", f"{everybody}:0000", True),
        ("00000000000000000000000001000000:1F90", f"{everybody}:0000", False),
        ("0000000000000000FFFF00000100007F:1F90", f"{everybody}:0000", False),
    ]
    for local, remote, expected in rows:
        table = f"header\n 0: {local} {remote} 0A 00:00 00:00 0 0 0 4711 1"
        assert reachable(table) == ({f"{local} 4711"} if expected else set()), local
    with socket.create_server(("127.0.0.1", 0)) as own:
        assert f":{own.getsockname()[1]:04X}" in TABLES[0].read_text(), "the table has it"
