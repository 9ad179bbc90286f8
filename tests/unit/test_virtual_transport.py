"""The handshake and the life of streams on one connection, spoken by hand."""

import asyncio
from collections.abc import Awaitable, Callable

from adt.virtual import wire
from adt.virtual.daemon import Daemon
from adt.virtual.wire import Service, Stream, Transport

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


def conversation(talk: Callable[[Server], Awaitable[None]]) -> Callable[[], None]:
    """Make a test of an exchange of messages with a daemon of the product."""

    async def run() -> None:
        ended = asyncio.Event()

        async def on_connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await EchoDaemon("unit").connected(reader, writer)
            ended.set()

        server = await asyncio.start_server(on_connection, "127.0.0.1", 0)
        connection = await asyncio.open_connection(*server.sockets[0].getsockname()[:2])
        await talk(Server(*connection))
        connection[1].close()
        await asyncio.wait_for(ended.wait(), 5)
        server.close()

    def test() -> None:
        asyncio.run(run())

    test.__name__, test.__doc__ = talk.__name__, talk.__doc__  # type: ignore[attr-defined]
    return test


@conversation
async def test_a_new_host_skips_checksums_and_large_writes_are_cut_to_its_size(host: Server) -> None:
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


@conversation
async def test_an_old_host_gets_checksums_and_must_send_them(host: Server) -> None:
    await host.greet(OLD)
    host.say(wire.OPEN, 1, 0, b"root:\0")
    assert (await host.hear()).command == wire.OKAY
    answer = await host.hear(summed=True)
    assert answer.payload == b"adbd is already running as root\n"
    host.say(wire.OPEN, 2, 0, b"root:\0", summed=False)
    assert (await host.hear()).command == wire.CLSE, "the end of the first stream"
    assert await host.is_cut_off()


@conversation
async def test_unknown_service_is_refused_with_zero(host: Server) -> None:
    await host.greet(NEW)
    for destination in (b"jdwp:1\0", b"tcp:\0", b"\0"):
        host.say(wire.OPEN, 9, 0, destination)
        assert await host.hear(summed=False) == wire.Packet(wire.CLSE, 0, 9)


@conversation
async def test_reboot_is_answered_in_words(host: Server) -> None:
    await host.greet(NEW)
    host.say(wire.OPEN, 3, 0, b"reboot:\0")
    assert (await host.hear(summed=False)).command == wire.OKAY
    assert b"not Android" in (await host.hear(summed=False)).payload


@conversation
async def test_open_before_the_handshake_ends_the_connection(host: Server) -> None:
    host.say(wire.OPEN, 1, 0, b"shell:id\0")
    assert await host.is_cut_off()


@conversation
async def test_garbage_ends_the_connection(host: Server) -> None:
    host.writer.write(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
    assert await host.is_cut_off()


@conversation
async def test_write_to_a_closed_stream_is_answered_with_close(host: Server) -> None:
    await host.greet(NEW)
    host.say(wire.WRTE, 5, 123, b"late")
    assert await host.hear(summed=False) == wire.Packet(wire.CLSE, 0, 5)
