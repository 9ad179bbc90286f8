"""The handshake and the life of streams on one connection, spoken by hand."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

import pytest

from adt.virtual import wire
from adt.virtual.daemon import Daemon
from adt.virtual.transport import Service, Stream, Transport
from support.devices.faults import parse
from support.devices.faulty_device import (
    AUTH,
    AUTH_PUBLIC_KEY,
    AUTH_SIGNATURE,
    AUTH_TOKEN,
    FAULTS,
    FaultyDaemon,
)

OLD, NEW = wire.VERSION_CHECKSUM, wire.VERSION_SKIP


class Server:
    """An adb server by hand, on a real socket."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    def say(self, command: int, arg0: int, arg1: int, payload: bytes = b"", *, summed: bool = True) -> None:
        self.writer.write(wire.header(command, arg0, arg1, payload, summed=summed) + payload)

    async def hear(self, *, summed: bool = True) -> wire.Packet:
        return await asyncio.wait_for(wire.read_packet(self.reader, summed=summed), 5)

    async def greet(self, version: int) -> None:
        self.say(wire.CNXN, version, 4096, b"host::features=shell_v2")
        answer = await self.hear()
        assert (answer.command, answer.arg0, answer.arg1) == (wire.CNXN, NEW, wire.MAX_PAYLOAD)
        assert answer.payload == b"device::hello"

    async def is_cut_off(self) -> bool:
        try:
            return await asyncio.wait_for(self.reader.read(1), 5) == b""
        except ConnectionResetError:
            return True


class EchoDaemon(Daemon):
    """A device with a service ``echo:``."""

    def hello(self) -> bytes:
        return b"device::hello"

    def find(self, transport: Transport, destination: str) -> Service | None:
        if destination != "echo:":
            return super().find(transport, destination)

        async def echo(stream: Stream) -> None:
            stream.accept()
            while data := await stream.read():
                await stream.write(data)

        return echo


class FaultyEchoDaemon(EchoDaemon, FaultyDaemon):
    """One that has *faults* and takes others."""

    def __init__(self, *faults: str) -> None:
        super().__init__("unit")
        self.injector.replace(parse(faults))


def talk(conversation: Callable[[Server], Awaitable[None]], daemon: Daemon | None = None) -> None:
    """Talk to *daemon*; None for one of the product."""

    async def run() -> None:
        ended = asyncio.Event()

        async def on_connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await (daemon or EchoDaemon("unit")).connected(reader, writer)
            ended.set()

        server = await asyncio.start_server(on_connection, "127.0.0.1", 0)
        connection = await asyncio.open_connection(*server.sockets[0].getsockname()[:2])
        await conversation(Server(*connection))
        connection[1].close()
        await asyncio.wait_for(ended.wait(), 5)
        server.close()

    asyncio.run(run())


def test_a_new_host_skips_checksums_and_large_writes_are_cut_to_its_size() -> None:
    async def conversation(host: Server) -> None:
        await host.greet(NEW)
        host.say(wire.OPEN, 77, 0, b"echo:\0", summed=False)
        opened = await host.hear(summed=False)
        assert (opened.command, opened.arg1) == (wire.OKAY, 77)
        host.say(wire.WRTE, 77, opened.arg0, bytes(5000), summed=False)
        assert (await host.hear(summed=False)).command == wire.OKAY
        first = await host.hear(summed=False)
        assert (first.command, len(first.payload)) == (wire.WRTE, 4096)
        host.say(wire.OKAY, 77, opened.arg0, summed=False)
        assert len((await host.hear(summed=False)).payload) == 904

    talk(conversation)


def test_an_old_host_gets_checksums_and_must_send_them() -> None:
    async def conversation(host: Server) -> None:
        await host.greet(OLD)
        host.say(wire.OPEN, 1, 0, b"root:\0")
        assert (await host.hear()).command == wire.OKAY
        answer = await host.hear(summed=True)
        assert answer.payload == b"adbd is already running as root\n"
        host.say(wire.OPEN, 2, 0, b"root:\0", summed=False)
        assert (await host.hear()).command == wire.CLSE, "the end of the first stream"
        assert await host.is_cut_off()

    talk(conversation)


def test_unknown_service_is_refused_with_zero() -> None:
    async def conversation(host: Server) -> None:
        await host.greet(NEW)
        for destination in (b"jdwp:1\0", b"tcp:\0", b"\0"):
            host.say(wire.OPEN, 9, 0, destination)
            assert await host.hear(summed=False) == wire.Packet(wire.CLSE, 0, 9)

    talk(conversation)


def test_reboot_is_answered_in_words() -> None:
    async def conversation(host: Server) -> None:
        await host.greet(NEW)
        host.say(wire.OPEN, 3, 0, b"reboot:\0")
        assert (await host.hear(summed=False)).command == wire.OKAY
        assert b"not Android" in (await host.hear(summed=False)).payload

    talk(conversation)


def test_open_before_the_handshake_ends_the_connection() -> None:
    async def conversation(host: Server) -> None:
        host.say(wire.OPEN, 1, 0, b"shell:id\0")
        assert await host.is_cut_off()

    talk(conversation)


def test_garbage_ends_the_connection() -> None:
    async def conversation(host: Server) -> None:
        host.writer.write(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        assert await host.is_cut_off()

    talk(conversation)


def test_write_to_a_closed_stream_is_answered_with_close() -> None:
    async def conversation(host: Server) -> None:
        await host.greet(NEW)
        host.say(wire.WRTE, 5, 123, b"late")
        assert await host.hear(summed=False) == wire.Packet(wire.CLSE, 0, 5)

    talk(conversation)


# injected faults -------------------------------------------------------------------------------


async def ask_for_entrance(host: Server) -> None:
    """The handshake of a host with one key that the device does not know."""
    host.say(wire.CNXN, NEW, 4096, b"host::")
    tokens = set()
    for _ in range(2):
        asked = await host.hear()
        assert (asked.command, asked.arg0, len(asked.payload)) == (AUTH, AUTH_TOKEN, 20)
        tokens.add(asked.payload)
        host.say(AUTH, AUTH_SIGNATURE, 0, bytes(256))
    assert len(tokens) == 2
    await host.hear()
    host.say(AUTH, AUTH_PUBLIC_KEY, 0, b"QUFB me@host\0")


async def echo(host: Server, data: bytes, *, number: int = 77) -> bytes:
    """Open a stream, say *data* and give what comes back."""
    host.say(wire.OPEN, number, 0, b"echo:\0", summed=False)
    opened = await host.hear(summed=False)
    assert (opened.command, opened.arg1) == (wire.OKAY, number)
    host.say(wire.WRTE, number, opened.arg0, data, summed=False)
    assert (await host.hear(summed=False)).command == wire.OKAY
    answer = await host.hear(summed=False)
    assert answer.command == wire.WRTE
    host.say(wire.OKAY, number, opened.arg0, summed=False)
    return answer.payload


def test_unauthorized_keeps_asking_for_a_key() -> None:
    async def conversation(host: Server) -> None:
        await ask_for_entrance(host)
        host.say(wire.OPEN, 1, 0, b"shell:id\0")
        assert await host.is_cut_off(), "no service without a key"

    daemon = FaultyEchoDaemon("unauthorized")
    talk(conversation, daemon)
    assert list(map(str, daemon.injector.armed())) == ["unauthorized"]


def test_unauthorized_is_accepted_in_the_end_and_remembered() -> None:
    async def conversation(host: Server) -> None:
        await ask_for_entrance(host)
        assert (await host.hear()).command == wire.CNXN
        assert await echo(host, b"hello") == b"hello"

    daemon = FaultyEchoDaemon("unauthorized=0.05")
    talk(conversation, daemon)
    assert daemon.injector.armed() == ()


@pytest.mark.parametrize("fault", ["unauthorized", "offline"])
def test_cleared_fault_lets_a_waiting_host_in(fault: str) -> None:
    daemon = FaultyEchoDaemon(fault)

    async def conversation(host: Server) -> None:
        if fault == "unauthorized":
            await ask_for_entrance(host)
        else:
            host.say(wire.CNXN, NEW, 4096, b"host::")
        await asyncio.sleep(0.05)
        daemon.injector.replace(())
        assert (await host.hear()).command == wire.CNXN

    talk(conversation, daemon)


def test_fault_of_the_handshake_cuts_the_connections_there_are() -> None:
    daemon = FaultyEchoDaemon()

    async def conversation(host: Server) -> None:
        await host.greet(NEW)
        daemon.injector.replace(parse(["stall-after=9"]))
        assert await echo(host, b"1234") == b"1234", "a fault of the link does not"
        daemon.injector.replace(parse(["offline"]))
        assert await host.is_cut_off()

    talk(conversation, daemon)


def test_faults_are_changed_on_a_connection_that_no_fault_strikes() -> None:
    daemon = FaultyEchoDaemon("offline", "stall-after=0")

    async def conversation(host: Server) -> None:
        host.say(FAULTS, 0, 0, b'{"faults": ["unauthorized", "drop-after=0"]}')
        assert (await host.hear()).payload == b'{"faults": ["unauthorized", "drop-after=0"]}'
        host.say(FAULTS, 0, 0, b"{}")
        assert (await host.hear()).payload == b'{"faults": ["unauthorized", "drop-after=0"]}'

    talk(conversation, daemon)


def test_drop_counts_both_directions() -> None:
    async def conversation(host: Server) -> None:
        await host.greet(NEW)
        assert await echo(host, bytes(5)) == bytes(5)
        host.say(wire.OPEN, 9, 0, b"echo:\0", summed=False)
        opened = await host.hear(summed=False)
        host.say(wire.WRTE, 9, opened.arg0, b"x", summed=False)
        assert await host.is_cut_off()

    daemon = FaultyEchoDaemon("drop-after=10@once")
    talk(conversation, daemon)
    assert daemon.injector.armed() == ()


def test_stalled_device_says_nothing_and_goes_on_when_the_fault_is_cleared() -> None:
    daemon = FaultyEchoDaemon("stall-after=4")

    async def conversation(host: Server) -> None:
        await host.greet(NEW)
        host.say(wire.OPEN, 5, 0, b"echo:\0", summed=False)
        opened = await host.hear(summed=False)
        host.say(wire.WRTE, 5, opened.arg0, b"12345", summed=False)
        host.say(wire.OPEN, 6, 0, b"echo:\0", summed=False)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(host.reader.read(1), 0.1)
        daemon.injector.replace(())
        heard = [await host.hear(summed=False) for _ in range(3)]
        assert {(packet.command, packet.arg1) for packet in heard} == {
            (wire.OKAY, 5),
            (wire.OKAY, 6),
            (wire.WRTE, 5),
        }

    talk(conversation, daemon)


def test_slow_link_carries_everything() -> None:
    async def conversation(host: Server) -> None:
        await host.greet(NEW)
        assert await echo(host, bytes(4000)) == bytes(4000)

    talk(conversation, FaultyEchoDaemon("bandwidth=100k"))


def test_reboot_is_asked_for_once_the_last_bytes_are_in() -> None:
    restarts: list[bool] = []

    async def conversation(host: Server) -> None:
        await host.greet(NEW)
        host.say(wire.OPEN, 5, 0, b"echo:\0", summed=False)
        opened = await host.hear(summed=False)
        host.say(wire.WRTE, 5, opened.arg0, b"12345", summed=False)
        with contextlib.suppress(ConnectionResetError):
            await host.reader.read()

    daemon = FaultyEchoDaemon("reboot-after=4")
    daemon.injector.on_reboot = lambda: restarts.append(True)
    talk(conversation, daemon)
    assert restarts == [True]
