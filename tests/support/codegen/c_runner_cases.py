"""Cases of tests/integration/test_runner_abi.py on the C interface, one function for each test."""

import ctypes
import os
import shutil
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from ctypes import byref, c_int64, c_void_p
from pathlib import Path
from typing import Any

import numpy as np

from support.codegen.c_runner import (
    DEVICE_LOST,
    INPUT,
    MISMATCH,
    NO_DEVICE,
    OUT_OF_MEMORY,
    PACKAGE,
    RUN,
    USAGE,
    Blob,
    BuildProgress,
    Failure,
    Info,
    Library,
    Options,
    OwnExecutor,
    Runner,
    Source,
    Tensor,
    TypedInfo,
    aligned,
    in_file,
    in_memory,
    main,
    source,
)

X = np.array([[1, -2, 3], [4, 5, -6]], "float32")
N = np.array([1, 2, 3, 2**62], "int64")
WEIGHT = np.linspace(-1, 1, 15, dtype="float32").reshape(3, 5)


def expect_mixed(runner: Runner, x: np.ndarray[Any, Any] = X) -> None:
    np.testing.assert_allclose(runner.get(0), np.maximum(x @ WEIGHT, 0), rtol=1e-6, atol=1e-6)
    assert runner.get(1).tolist() == (N + N).tolist()


def run_mixed(runner: Runner, x: np.ndarray[Any, Any] = X) -> None:
    runner.set(0, x)
    runner.set(1, N)
    runner.run()
    expect_mixed(runner, x)


def describe(library: Library, mixed: Path, symbolic: Path) -> None:
    assert library.ask("abi_version") == 1
    assert "(TVM " in library.ask("version")
    runner = Runner(library, mixed)
    assert runner.ask("package_name") == "mixed"
    assert runner.ask("manifest") == (mixed / "mod.json").read_text()
    assert runner.ask("device") == "cpu"
    assert "processors" in runner.ask("device_name")
    assert runner.ask("device_driver") == ""
    assert runner.ask("program_cache") == "off"
    assert runner.ask("program_cache_warning") == ""
    assert runner.ask("alignment") == 64
    assert runner.ask("entry_count") == 1
    assert runner.ask("entry_name", 0) == "main"
    assert runner.ask("find_entry", b"main") == 0
    assert (runner.ask("input_count", 0), runner.ask("output_count", 0)) == (2, 2)
    assert (runner.ask("find_input", 0, b"n"), runner.ask("find_output", 0, b"m")) == (1, 1)
    x = runner.info("input", 0)
    assert (x.name, x.dtype, x.shape[: x.rank]) == (b"x", b"float32", [2, 3])
    assert (x.element_size, x.size, x.symbols[0]) == (4, 24, None)
    assert runner.info("output", 1).name == b"m"
    a = Runner(library, symbolic).info("input", 0)
    assert (a.shape[: a.rank], a.symbols[0], a.size) == ([-1], b"n", -1)


def runs(library: Library, mixed: Path) -> None:
    runner = Runner(library, mixed)
    library.refused(INPUT, "input x is missing", "n int64[4]", call=runner.run)
    for k in range(3):
        run_mixed(runner, X * k)
    runner.set(0, X)  # outputs stay those of the last run
    expect_mixed(runner, X * 2)
    runner.run()  # n stays set
    expect_mixed(runner)
    taken = runner.take(0)
    assert taken.view().tolist() == taken.get().tolist() == runner.get(0).tolist()
    taken.free()
    runner.call("start", 0)
    runner.call("wait")
    expect_mixed(runner)
    runner.free()


def inputs_that_come_back(library: Library, echo: Path) -> None:
    """Return an input: setting it later must not change what was returned."""
    runner = Runner(library, echo)
    count = runner.ask("input_count", 0)
    values = {}
    for i in range(count):
        info = runner.info("input", i)
        values[i] = np.ones(info.shape[: info.rank], info.dtype.decode())
        runner.set(i, values[i])
    runner.run()
    first = {i: runner.get(i) for i in range(count)}
    for i in range(count):
        runner.set(i, np.zeros_like(values[i]))
    for i in range(count):
        assert runner.get(i).tolist() == first[i].tolist() == values[i].tolist()
    runner.run()
    assert not any(runner.get(i).any() for i in range(count))
    bound = aligned((3, 2, 4), "float32")
    bound[:] = 7
    at = runner.ask("find_input", 0, b"in_float32")
    runner.bind(at, bound)
    runner.run()
    taken = runner.take(at)
    assert taken.data() == bound.ctypes.data
    assert taken.view().tolist() == bound.tolist()
    taken.free()
    runner.set(at, values[at])
    runner.run()
    taken = runner.take(at)  # the runner's own memory, and the taker's from now on
    runner.set(at, np.zeros_like(values[at]))
    runner.run()
    assert taken.view().tolist() == values[at].tolist()
    assert not runner.get(at).any()
    taken.free()


def indices(library: Library, ranged: Path) -> None:
    """Look at copied, bound and carried indices of mixed, whose input n has indices from -3 to 9."""
    right, wrong = np.array([-3, 0, 5, 9], "int64"), np.array([0, 1, 2, 10], "int64")
    runner = Runner(library, ranged)
    runner.set(0, X)
    library.refused(INPUT, "input n has the value 10", "-3 to 9", call=lambda: runner.set(1, wrong))
    runner.set(1, right)
    runner.run()
    bound = aligned((4,), "int64")
    bound[:] = right
    runner.bind(1, bound)
    runner.run()
    bound[3] = -4  # the caller's array may change between runs
    library.refused(INPUT, "input n has the value -4", call=runner.run)
    runner.set(1, right)
    runner.run()  # m = n + n
    runner.carry(0, 1, 0, 1)
    library.refused(INPUT, "input n has the value -6", call=runner.run)


def binding(library: Library, mixed: Path) -> None:
    runner = Runner(library, mixed)
    runner.set(1, N)
    x = aligned((2, 3), "float32")
    runner.bind(0, x)
    for k in range(3):
        x[:] = X * k
        runner.run()
        expect_mixed(runner, X * k)
    other = aligned((2, 3), "float32")
    other[:] = X
    runner.bind(0, other)
    runner.run()
    expect_mixed(runner)
    off = aligned((2, 3), "float32", off=4)
    library.refused(INPUT, "no multiple of 64 bytes", "copy it", call=lambda: runner.bind(0, off))
    runner.run()
    expect_mixed(runner)  # a refusal changes nothing
    runner.set(0, X * 2)
    other[:] = 0
    runner.run()
    expect_mixed(runner, X * 2)


def shapes(library: Library, symbolic: Path) -> None:
    runner = Runner(library, symbolic)
    for length in (1, 17, 0, 5):
        a = np.arange(length, dtype="float32")
        runner.set(0, a, shaped=True)
        runner.set(1, a, shaped=True)
        runner.run()
        assert runner.shape(0) == (length,)
        assert runner.get(0).tolist() == (a + a).tolist()
    library.refused(INPUT, "its shape varies", call=lambda: runner.set(0, a))
    runner.set(1, np.zeros(4, "float32"), shaped=True)
    library.refused(INPUT, "input b is float32[4]", "n is 5 elsewhere", call=runner.run)
    library.refused(USAGE, "no outputs yet", call=lambda: runner.get(0))
    two = np.zeros((2, 2), "float32")
    library.refused(INPUT, "float32[2, 2]", call=lambda: runner.set(0, two, shaped=True))
    shape = (c_int64 * 1)(2**62)
    data = two.ctypes.data_as(c_void_p)
    library.refused(
        INPUT,
        "float32[4611686018427387904]",
        call=lambda: runner.call("set_input_shaped", 0, 0, data, c_int64(16), shape, 1),
    )


def state(library: Library, recurrent: Path) -> None:
    """Carry state between encode, h = x * 2, and decode, (s + h, s + 1)."""
    runner = Runner(library, recurrent)
    encode, decode = runner.ask("find_entry", b"encode"), runner.ask("find_entry", b"decode")
    runner.set(0, np.full(4, 3, "float32"), encode)
    runner.run(encode)
    runner.set(0, np.zeros(4, "float32"), decode)
    runner.carry(encode, 0, decode, 1)
    for step in range(4):
        runner.run(decode)
        assert runner.get(0, decode).tolist() == [6.0 + step] * 4
        runner.carry(decode, 1, decode, 0)  # it may still be read
        assert runner.get(1, decode).tolist() == [step + 1.0] * 4
    assert runner.get(0, encode).tolist() == [6.0] * 4  # another entry's outputs stay
    runner.set(0, np.full(4, 9, "float32"), decode)  # not into the carried output
    assert runner.get(1, decode).tolist() == [4.0] * 4
    runner.run(decode)
    assert runner.get(0, decode).tolist() == [15.0] * 4
    library.refused(USAGE, "no output 2", call=lambda: runner.carry(decode, 2, decode, 0))
    library.refused(INPUT, "input c is float32[4]", "float32[5]", call=lambda: runner.carry(0, 0, 2, 0))
    library.refused(INPUT, "int64[4]", call=lambda: runner.carry(0, 0, 2, 1))


def origins(library: Library, mixed: Path, tmp_path: Path) -> None:
    """Load from memory, from a part of a file, by the library's path and name."""
    parts = {name: (mixed / name).read_bytes() for name in ("mod.json", "mod.params", "mod.so")}
    blobs = [in_memory(parts[name]) for name in ("mod.json", "mod.params", "mod.so")]
    memory = [Runner(library, source(*blobs)) for _ in range(3)]
    archive, places = tmp_path / "assets", []
    with archive.open("wb") as file:
        for content in parts.values():
            file.write(b"\xaa" * (4096 + 100 - file.tell() % 4096))
            places.append((file.tell(), len(content)))
            file.write(content)
        file.write(b"more")
    fd = os.open(archive, os.O_RDONLY)
    os.lseek(fd, 17, os.SEEK_SET)
    ranges = Runner(library, source(*[in_file(fd, at, size) for at, size in places]))
    assert os.lseek(fd, 0, os.SEEK_CUR) == 17
    os.close(fd)
    whole = [os.open(mixed / name, os.O_RDONLY) for name in parts]
    files = Runner(library, source(*map(in_file, whole)))
    named = Runner(library, source(*blobs[:2], str(mixed / "mod.so")))
    again = Runner(library, source(*blobs[:2], str(mixed / "mod.so")))  # loaded a second time
    for runner in (*memory, ranges, files, named, again):
        run_mixed(runner)
    for runner in (*memory, ranges, files, named, again):
        runner.free()

    mistakes: list[tuple[int, str, Callable[[], Any]]] = [
        (PACKAGE, "sha256", lambda: source(*blobs[:2], in_memory(parts["mod.so"][:-1] + b"\1"))),
        (PACKAGE, "(size)", lambda: source(*blobs[:2], in_memory(parts["mod.so"] + b"\0"))),
        (PACKAGE, "(size)", lambda: source(blobs[0], in_memory(parts["mod.params"][:-1]), blobs[2])),
        (PACKAGE, "not JSON", lambda: source(in_memory(parts["mod.json"][:-9]), *blobs[1:])),
        (PACKAGE, "no ELF", lambda: source(*blobs[:2], in_memory(b"what"))),
        (PACKAGE, "no ELF", lambda: source(*blobs[:2], in_file(whole[2], 4, 100))),
        (PACKAGE, "of a file of", lambda: source(in_file(whole[0], 0, 10**9), *blobs[1:])),
        (PACKAGE, "of a file of", lambda: source(in_file(whole[0], -1), *blobs[1:])),
        (PACKAGE, "of a file of", lambda: source(in_file(whole[0], 10**9), *blobs[1:])),
        (PACKAGE, "Bad file descriptor", lambda: source(in_file(999), *blobs[1:])),
        (PACKAGE, "not in a regular file", lambda: source(in_file(os.pipe()[0]), *blobs[1:])),
        (USAGE, "no mod.params was given", lambda: source(blobs[0], in_file(-1), blobs[2])),
        (USAGE, "-5 bytes", lambda: source(blobs[0], Blob(blobs[1].data, -5, 0, -1), blobs[2])),
        (MISMATCH, "libno-such.so", lambda: source(*blobs[:2], "libno-such.so")),
        (USAGE, "libc.so.6 is loaded already", lambda: source(*blobs[:2], "libc.so.6")),
    ]  # fmt: skip
    for status, words, make in mistakes:
        library.refused(status, words, call=lambda make=make: Runner(library, make()))


def names(library: Library, first: Path, second: Path) -> None:
    """Load y = relu(x @ w) and sigmoid(x @ w), whose libraries the linker finds by their SONAMEs."""

    def load(package: Path) -> Runner:
        blobs = (in_memory((package / name).read_bytes()) for name in ("mod.json", "mod.params"))
        (name,) = (file.name for file in package.glob("mod-*.so"))
        return Runner(library, source(*blobs, name))

    x = np.array([[1, 2, 3, 4]], "float32")
    product = x @ (np.arange(12, dtype="float32").reshape(4, 3) / 10 - 0.5)
    expected = np.maximum(product, 0), 1 / (1 + np.exp(-product))
    runners = [load(package) for package in (first, second)]
    for runner, y in zip(runners, expected, strict=True):
        runner.set(0, x)
        runner.run()
        np.testing.assert_allclose(runner.get(0), y, rtol=1e-5)
    library.refused(USAGE, ".so is loaded already", call=lambda: load(first))
    runners[0].free()
    load(first).free()


def scratch(library: Library, mixed: Path, tmp_path: Path) -> None:
    """Load where no library can be loaded from memory (here: the system call is refused)."""
    parts = [in_memory((mixed / name).read_bytes()) for name in ("mod.json", "mod.params", "mod.so")]
    library.refused(
        MISMATCH, "memory cannot be a file", "scratch directory", call=lambda: Runner(library, source(*parts))
    )
    runner = Runner(library, source(*parts), scratch=str(tmp_path))
    assert not list(tmp_path.iterdir())
    run_mixed(runner)
    missing = str(tmp_path / "gone")
    library.refused(MISMATCH, "gone", call=lambda: Runner(library, source(*parts), scratch=missing))


def at_once(*works: Callable[[], Any]) -> None:
    """Do all *works*, each in a thread of its own."""
    barrier = threading.Barrier(len(works))

    def body(work: Callable[[], Any]) -> None:
        barrier.wait()
        work()

    with ThreadPoolExecutor(len(works)) as pool:
        for done in [pool.submit(body, work) for work in works]:
            done.result()


def threads(library: Library, mixed: Path) -> None:
    runner = Runner(library, mixed)
    run_mixed(runner)
    at_once(lambda: run_mixed(runner, X * 3))  # made here, used there
    expect_mixed(runner, X * 3)

    def live(factor: int) -> None:
        for _ in range(3):
            own = Runner(library, mixed)
            for k in range(20):
                run_mixed(own, X * factor * k)
            own.free()

    at_once(*(lambda factor=factor: live(factor) for factor in range(1, 5)))
    expect_mixed(runner, X * 3)

    def fail() -> None:
        library.refused(USAGE, "no entry 5", call=lambda: runner.run(5))

    library.refused(USAGE, "no entry 7", call=lambda: runner.run(7))
    at_once(fail)
    assert "no entry 7" in library.failure().text  # each thread has its own

    def hammer() -> None:  # one handle: one call after the other
        for _ in range(200):
            runner.run()

    at_once(hammer, hammer, hammer)
    expect_mixed(runner, X * 3)

    first, second = Runner(library, mixed), Runner(library, mixed)
    run_mixed(first)
    first.free()
    run_mixed(second)


def thread_count(library: Library, mixed: Path) -> None:
    def call(count: int, affinity: bytes | None) -> None:
        if library.raw.adt_set_threads(count, affinity):
            raise library.failure()

    own = sorted(os.sched_getaffinity(0))

    call(1, str(own[0]).encode())
    run_mixed(Runner(library, mixed))
    assert sorted(os.sched_getaffinity(0)) == own
    for affinity in (b"all", b"big", b"little", None):
        call(0, affinity)
    for affinity in (b"", b"huge", b"0,", b"1-0", b"-1", b"0-", b"x", b"0,,1", b"99999999999"):
        library.refused(
            USAGE, "no cores are called", "0,4-7", call=lambda affinity=affinity: call(0, affinity)
        )
    library.refused(USAGE, "there are no cores 1000", call=lambda: call(0, b"1000"))
    library.refused(USAGE, "2 threads do not fit on 1 cores", call=lambda: call(2, str(own[0]).encode()))
    library.refused(USAGE, "-1 threads", call=lambda: call(-1, None))


def runs_on_opencl(library: Library, on_opencl: Path, recurrent: Path) -> None:
    """Run y = relu(x @ w), and encode and decode as above."""
    weight = np.arange(12, dtype="float32").reshape(4, 3) / 10 - 0.5
    runner = Runner(library, on_opencl, program_cache="off")
    assert runner.ask("device") == "opencl"
    assert runner.ask("device_driver")
    assert runner.ask("program_cache") == "off"

    def expect(used: Runner, x: np.ndarray[Any, Any]) -> None:
        np.testing.assert_allclose(used.get(0), np.maximum(x @ weight, 0), rtol=1e-5, atol=1e-5)

    x = np.array([[1, 2, 3, 4]], "float32")
    for k in range(3):
        runner.set(0, x * k)
        runner.call("start", 0)
        runner.call("wait")
        expect(runner, x * k)
    runner.set(0, x)
    for k in range(200):  # runs in the queue, and the array is another one at once
        runner.call("start", 0)
        again = x * k
        runner.set(0, again)
        again[:] = 1000
    runner.call("start", 0)
    expect(runner, x * 199)
    runner.set(0, x * 2)
    for _ in range(10):
        runner.call("start", 0)  # several in the queue
    runner.set(0, x * 5)  # after them
    expect(runner, x * 2)
    runner.run()
    expect(runner, x * 5)
    bound = aligned((1, 4), "float32")
    bound[:] = x
    runner.bind(0, bound)  # copied now
    bound[:] = 1000
    runner.run()
    expect(runner, x)

    def use(used: Runner, factor: int) -> None:
        for k in range(10):
            used.set(0, x * factor * k)
            used.run()
            expect(used, x * factor * k)

    at_once(lambda: use(runner, 2))
    other, session = Runner(library, on_opencl, program_cache="off"), runner.session()
    at_once(lambda: use(runner, 3), lambda: use(other, 4), lambda: use(session, 6))
    runner.free()
    use(other, 5)
    other.free()
    use(session, 8)
    session.free()
    carried_on_opencl(library, recurrent)


def carried_on_opencl(library: Library, recurrent: Path) -> None:
    """Compute (s + h, s + 1); the state stays on the device."""
    runner = Runner(library, recurrent, program_cache="off")
    runner.set(0, np.zeros((1, 4), "float32"))
    runner.set(1, np.full((1, 4), 6, "float32"))
    for _ in range(5):
        runner.call("start", 0)
        runner.carry(0, 1, 0, 0)
    assert runner.get(1).tolist() == [[5.0] * 4]
    assert runner.get(0).tolist() == [[10.0] * 4]


def kernels_are_kept(library: Library, on_opencl: Path, tmp_path: Path) -> None:
    x = np.array([[1, 2, 3, 4]], "float32")
    results = []
    for state in ("written", "hit", "hit"):
        runner = Runner(library, on_opencl, program_cache=str(tmp_path))  # the ones before are still loaded
        runner.set(0, x)
        runner.run()
        assert runner.ask("program_cache") == state, runner.ask("program_cache_warning")
        results.append(runner.get(0).tolist())
    assert results[0] == results[1] == results[2]


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


def memory_of_shapes(library: Library, symbolic: Path) -> None:
    """Run 100 shapes of 4 to 8 MB: the model's memory is not kept for each, nor when the handle is freed."""
    arrays = [np.zeros(1_000_000 + 10_000 * number, "float32") for number in range(100)]
    for array in arrays:
        array.fill(1)
    before = resident()
    runner = Runner(library, symbolic)
    for array in arrays:
        runner.set(0, array, shaped=True)
        runner.set(1, array, shaped=True)
        runner.run()
        assert runner.shape(0) == array.shape
    most = resident() - before
    library.raw.adt_trim()
    trimmed = resident() - before
    runner.run()
    runner.free()
    freed = resident() - before
    assert most < 100_000_000, most
    assert trimmed < 40_000_000, trimmed  # two inputs and an output
    assert freed < 8_000_000, freed


def parameters_are_in_memory_once(library: Library, large: Path) -> None:
    """Share 64 MiB of pages, which the system may take back, between handles and between their sessions."""

    def own() -> int:
        resident_pages, file_pages = map(int, Path("/proc/self/statm").read_text().split()[1:3])
        return (resident_pages - file_pages) * os.sysconf("SC_PAGESIZE")

    def use(runner: Runner) -> Runner:
        runner.set(0, np.full(1, 7, "float32"))
        runner.run()
        assert runner.get(0) == 7
        return runner

    before = own()
    runners = [use(Runner(library, large)) for _ in range(3)]
    grown = own() - before
    assert grown < 8_000_000, grown
    before = resident()
    runners += [use(runners[0].session()) for _ in range(3)]
    assert resident() - before < 4_000_000, resident() - before
    for runner in runners:
        runner.free()


def sessions(library: Library, mixed: Path, recurrent: Path) -> None:
    """Run four sessions of one model in four threads: each has its own inputs, outputs and state."""
    first = Runner(library, mixed)
    four = [first, *(first.session() for _ in range(3))]

    def use(runner: Runner, factor: int) -> None:
        for k in range(50):
            run_mixed(runner, X * factor * k)

    at_once(*(lambda runner=runner, n=n: use(runner, n) for n, runner in enumerate(four, 1)))
    for n, runner in enumerate(four, 1):
        expect_mixed(runner, X * n * 49)
    first.free()  # the others have the model
    last = four[1].session()
    for runner in (*four[1:], last):
        run_mixed(runner, X * 7)
        runner.free()

    original = Runner(library, recurrent)
    two = original.session()
    for runner, start in ((original, 0), (two, 100)):
        runner.set(0, np.full(4, start, "float32"), entry=1)
        runner.set(1, np.zeros(4, "float32"), entry=1)
    for steps, runner in ((3, original), (5, two)):
        for _ in range(steps):
            runner.run(1)
            runner.carry(1, 1, 1, 0)
    assert (original.get(1, 1)[0], two.get(1, 1)[0]) == (3, 105)

    out = c_void_p(1)
    library.refused(USAGE, "of is NULL", call=lambda: library.call("create_session", None, byref(out)))
    assert not out
    library.refused(USAGE, "out is NULL", call=lambda: original.call("create_session", None))


def sessions_share_weights(library: Library, large: Path) -> None:
    """Share weights on OpenCL, which is tests/support/standins/opencl_driver.c."""
    driver = ctypes.CDLL("libOpenCL.so")

    def run(runner: Runner) -> Runner:
        runner.set(0, runner.zeros())
        runner.run()
        return runner

    def count() -> np.ndarray[Any, Any]:
        library.raw.adt_trim()
        return np.array([driver.standin_alive(), driver.standin_bytes()])

    empty = count()
    first = Runner(library, large, program_cache="off")
    loaded = count() - empty  # weights and programs
    run(first)
    after_one = count()
    others = [run(first.session()) for _ in range(3)]
    each = (count() - after_one) / 3
    assert (each < loaded / (2, 100)).all(), (each, loaded)  # objects, bytes
    for runner in (first, *others):
        runner.free()
    assert (count() == empty).all()


def memory_of_packages(library: Library, mixed: Path, tmp_path: Path) -> None:
    """Load 100 packages, one after the other: neither memory nor code of them stays."""
    packages = [Path(shutil.copytree(mixed, tmp_path / str(number))) for number in range(100)]

    def live(some: list[Path]) -> int:
        for package in some:
            runner = Runner(library, package)
            run_mixed(runner)
            runner.free()
        return resident()

    first = live(packages[:50])
    assert live(packages[50:]) - first < 4_000_000
    assert str(tmp_path) not in Path("/proc/self/maps").read_text()


def objects_of_handles(library: Library, textured: Path, tmp_path: Path) -> None:
    """Count the OpenCL objects of handles; OpenCL is tests/support/standins/opencl_driver.c."""
    driver = ctypes.CDLL("libOpenCL.so")
    counts = []
    for _ in range(100):
        runner = Runner(library, textured, program_cache=str(tmp_path))
        runner.set(0, runner.zeros())
        runner.run()
        used = driver.standin_alive()
        library.raw.adt_trim()  # images that are kept for the next run
        assert 0 < driver.standin_alive() < used
        runner.run()
        runner.free()
        counts.append((driver.standin_alive(), driver.standin_bytes()))
    assert counts == [(0, 0)] * 100, counts


def parameters_are_waited_for_once(library: Library, textured: Path, large: Path) -> None:
    """Wait once for each 32 MiB of parameters; OpenCL is tests/support/standins/opencl_driver.c."""
    driver = ctypes.CDLL("libOpenCL.so")

    def load(package: Path) -> tuple[int, int]:
        before = driver.standin_writes(), driver.standin_finishes()
        runner = Runner(library, package, program_cache="off")
        after = driver.standin_writes(), driver.standin_finishes()
        runner.set(0, runner.zeros())
        waited = driver.standin_finishes()
        runner.run()
        assert driver.standin_finishes() > waited  # a run is waited for
        runner.free()
        return after[0] - before[0], after[1] - before[1]

    writes, waits = load(textured)
    assert writes > 3 and waits == 1, (writes, waits)
    writes, waits = load(large)
    assert writes >= 16 and waits == 2, (writes, waits)


def device_failures(library: Library, textured: Path) -> None:
    """Tell failures that an app can act on; OpenCL is tests/support/standins/opencl_driver.c."""
    driver = ctypes.CDLL("libOpenCL.so")
    fail, always = driver.standin_fail, 1 << 60
    fail.argtypes = (ctypes.c_long, ctypes.c_long, ctypes.c_int32)

    def statuses(call: Callable[[], Any], code: int, first: int, last: int) -> set[int]:
        fail(first, last, code)
        try:
            call()
        except Failure as failure:
            return {failure.status}
        finally:
            fail(1, -1, 0)
        return set()

    def load() -> Runner:
        return Runner(library, textured, program_cache="off")

    runner = load()
    zeros = runner.zeros()
    runner.set(0, zeros)
    runner.run()
    calls = driver.standin_calls

    def run() -> None:
        runner.set(0, zeros)
        runner.run()
        runner.get(0)

    fail(1, -1, 0)
    run()
    count = calls()
    for code in (-2, -36, -5):  # the device is gone: CL_OUT_OF_RESOURCES, too, when nothing else works
        assert statuses(run, code, 1, always) == {DEVICE_LOST}, code
        assert statuses(load, code, 1, always) == {DEVICE_LOST}, code
        run()
    for code in (-4, -6):
        assert statuses(load, code, 1, always) == {OUT_OF_MEMORY}, code
        assert statuses(run, code, 1, always) == {OUT_OF_MEMORY}, code
    once = [statuses(run, -5, call, call) for call in range(1, count + 1)]
    assert set.union(*once) == {OUT_OF_MEMORY}, once  # the device answers
    unnamed = [statuses(run, -30, call, call) for call in range(1, count + 1)]
    assert set.union(*unnamed) == {RUN}, unnamed
    run()
    runner.free()


def several_devices(library: Library, on_opencl: Path, tmp_path: Path) -> None:
    """Compute on both devices that PoCL has here."""
    x = np.array([[1, 2, 3, 4]], "float32")
    runners = {name: Runner(library, on_opencl, device=name, program_cache=str(tmp_path))
               for name in ("opencl", "opencl:0", "opencl:1")}  # fmt: skip
    results = []
    for runner in runners.values():
        assert runner.ask("device") == "opencl"
        runner.set(0, x)
        runner.run()
        results.append(runner.get(0).tolist())
    assert results[0] == results[1] == results[2]
    labels = [runner.ask("device_name") for runner in runners.values()]
    assert labels[0] == labels[1] != labels[2], labels
    for name in ("opencl:2", "opencl:", "opencl:x", "opencl:-1", "cpu:0x0", "opencl:99999999999"):
        library.refused(NO_DEVICE, name, call=lambda name=name: Runner(library, on_opencl, device=name))


def programs_are_built(library: Library, on_opencl: Path, tmp_path: Path) -> None:
    calls: list[tuple[int | None, int, int]] = []

    def report(data: int | None, done: int, total: int) -> None:
        calls.append((data, done, total))

    def load(threads: int) -> Runner:
        calls.clear()
        options = Options(ctypes.sizeof(Options))
        options.program_cache = str(tmp_path).encode()
        options.build_threads, options.build_progress = threads, BuildProgress(report)
        options.build_progress_data = 42
        return Runner(library, on_opencl, options)

    x = np.array([[1, 2, 3, 4]], "float32")
    lazily = load(-1)
    assert calls == []
    runner = load(2)
    total = calls[-1][2]
    assert total > 0
    assert calls[0] == (42, 0, total)
    assert calls[-1] == (42, total, total)
    assert calls == sorted(set(calls))
    for either in (lazily, runner):
        either.set(0, x)
        either.run()
        assert either.ask("program_cache") == "written"
    assert lazily.get(0).tolist() == runner.get(0).tolist()
    assert load(2).ask("program_cache") == "hit"
    assert calls == []  # nothing is left to be built


class NewerOptions(OwnExecutor):
    _fields_ = (("later", c_void_p),)


class NewerSource(Source):
    _fields_ = (("later", ctypes.c_uint64 * 3),)


class NewerInfo(TypedInfo):
    _fields_ = (("later", ctypes.c_uint64 * 2),)


def growth(library: Library, mixed: Path) -> None:
    """Pass structs of a newer header, and of the first: they grow at their ends."""
    assert [ctypes.sizeof(kind) for kind in (Options, Source, Info)] == [56, 112, 56]

    options = NewerOptions(ctypes.sizeof(NewerOptions), build_threads=1)
    Runner(library, mixed, options).free()
    options.later = 1
    library.refused(
        USAGE, "adt_runner_options has a field", "newer one", call=lambda: Runner(library, mixed, options)
    )

    parts = [in_memory((mixed / name).read_bytes()) for name in ("mod.json", "mod.params", "mod.so")]
    newer = NewerSource(ctypes.sizeof(NewerSource), *parts, None)
    Runner(library, newer).free()
    newer.later[2] = 1
    library.refused(USAGE, "adt_package_source has a field", call=lambda: Runner(library, newer))

    runner = Runner(library, mixed)
    info = NewerInfo(ctypes.sizeof(NewerInfo), later=(1, 2))
    runner.call("input_info", 0, 0, byref(info))
    assert (info.name, info.struct_size, list(info.later)) == (b"x", ctypes.sizeof(NewerInfo), [0, 0])
    runner.free()


def mistakes(library: Library, mixed: Path) -> None:
    raw, out = library.raw, c_void_p(1)
    assert raw.adt_last_error() == b""
    assert raw.adt_last_status() == 0
    none: Any = None
    path = str(mixed).encode()
    library.refused(USAGE, "directory is NULL", call=lambda: library.call("create", none, none, byref(out)))
    assert not out
    library.refused(USAGE, "out is NULL", call=lambda: library.call("create", path, none, none))
    library.refused(USAGE, "source is NULL", call=lambda: library.call("create_from", none, none, byref(out)))
    for size in (0, 3, ctypes.sizeof(Options) - 1):
        options = Options(size)
        library.refused(
            USAGE, "struct_size", "sizeof",
            call=lambda options=options: library.call("create", path, byref(options), byref(out)),
        )  # fmt: skip
    library.refused(PACKAGE, "does not exist", call=lambda: Runner(library, Path("/no/such")))
    library.refused(NO_DEVICE, "knows no device", call=lambda: Runner(library, mixed, device="npu"))
    library.refused(
        MISMATCH, "compiled for the device cpu", call=lambda: Runner(library, mixed, device="opencl")
    )

    raw.adt_runner_free(none)

    runner = Runner(library, mixed)
    info = byref(Info(ctypes.sizeof(Info)))
    data, size = X.ctypes.data_as(c_void_p), c_int64(X.nbytes)
    big = c_int64(2**62)
    tensor = Tensor.of(library, X)
    calls: list[tuple[int, str, Callable[[], Any]]] = []

    def refuse(status: int, words: str, name: str, *arguments: Any) -> None:
        value = name in ("find_entry", "find_input", "find_output", "entry_name", "input_count", "output_count",
                         "output_shape", "output_size")  # fmt: skip
        calls.append((status, words, lambda: (runner.ask if value else runner.call)(name, *arguments)))

    for index in (-1, 2, 2**31 - 1, -(2**31)):
        refuse(USAGE, f"no input {index}", "set_input", 0, index, data, size)
        refuse(USAGE, f"no input {index}", "set_input_tensor", 0, index, tensor.handle)
        refuse(USAGE, f"no input {index}", "input_tensor", 0, index, none, 0, byref(out))
        refuse(USAGE, f"no input {index}", "input_info", 0, index, info)
        refuse(USAGE, f"no output {index}", "output_info", 0, index, info)
        refuse(USAGE, f"no output {index}", "get_output", 0, index, data, size)
        refuse(USAGE, f"no output {index}", "take_output", 0, index, byref(out))
        refuse(USAGE, f"no output {index}", "output_shape", 0, index, none, 0)
        refuse(USAGE, f"no output {index}", "output_size", 0, index)
        refuse(USAGE, f"no entry {index}", "run", index)
        refuse(USAGE, f"no entry {index}", "start", index)
        refuse(USAGE, f"no entry {index}", "entry_name", index)
        refuse(USAGE, f"no entry {index}", "input_count", index)
        refuse(USAGE, f"no entry {index}", "take_output", index, 0, byref(out))
    refuse(USAGE, "no entry other", "find_entry", b"other")
    refuse(USAGE, "It has: x, n", "find_input", 0, b"other")
    refuse(USAGE, "It has: y, m", "find_output", 0, b"other")
    refuse(USAGE, "name is NULL", "find_input", 0, none)
    refuse(USAGE, "name is NULL", "find_entry", none)
    refuse(USAGE, "data is NULL", "set_input", 0, 0, none, size)
    refuse(USAGE, "shape is NULL", "set_input_shaped", 0, 0, data, size, none, 2)
    refuse(USAGE, "-1 extents", "set_input_shaped", 0, 0, data, size, none, -1)
    refuse(USAGE, "-1 bytes", "set_input", 0, 0, data, c_int64(-1))
    refuse(INPUT, "has 4 bytes of data, its shape takes 24", "set_input", 0, 0, data, c_int64(4))
    refuse(INPUT, "its shape takes 24", "set_input", 0, 0, data, big)
    refuse(USAGE, "no outputs yet", "get_output", 0, 0, data, size)
    refuse(USAGE, "no outputs yet", "take_output", 0, 0, byref(out))
    refuse(USAGE, "tensor is NULL", "set_input_tensor", 0, 0, none)
    refuse(USAGE, "out is NULL", "input_tensor", 0, 0, none, 0, none)
    refuse(INPUT, "input n is float32[2, 3]", "set_input_tensor", 0, 1, tensor.handle)
    refuse(USAGE, "info is NULL", "input_info", 0, 0, none)
    refuse(USAGE, "struct_size is 0", "input_info", 0, 0, byref(Info(0)))
    for status, words, call in calls:
        library.refused(status, words, call=call)

    run_mixed(runner)
    calls.clear()
    refuse(INPUT, "output y has 40 bytes, there is room for 24", "get_output", 0, 0, data, size)
    refuse(USAGE, "data is NULL", "get_output", 0, 0, none, c_int64(40))
    refuse(USAGE, "out is NULL", "take_output", 0, 0, none)
    refuse(USAGE, "shape is NULL", "output_shape", 0, 0, none, 2)
    for status, words, call in calls:
        library.refused(status, words, call=call)
    short = (c_int64 * 2)(-7, -7)
    assert runner.ask("output_shape", 0, 0, short, 1) == 2
    assert list(short) == [2, -7]
    expect_mixed(runner)

    for name in ("package_name", "manifest", "device", "device_name", "device_driver", "program_cache",
                 "entry_count", "alignment"):  # fmt: skip
        library.refused(USAGE, "runner is NULL", call=lambda name=name: library.ask(name, none))
    for name, arguments in {
        "run": (0,), "start": (0,), "wait": (), "set_input": (0, 0, data, size),
        "set_input_tensor": (0, 0, tensor.handle), "input_tensor": (0, 0, none, 0, byref(out)),
        "take_output": (0, 0, byref(out)),
        "get_output": (0, 0, data, size), "input_info": (0, 0, info),
    }.items():  # fmt: skip
        library.refused(
            USAGE, "runner is NULL",
            call=lambda name=name, arguments=arguments: library.call(name, none, *arguments),
        )  # fmt: skip


def a_model_that_fails(library: Library, fewer: Path) -> None:
    """Load a package whose mod.json describes one of its two outputs."""
    runner = Runner(library, fewer)
    runner.set(0, X)
    runner.set(1, N)
    for _ in range(2):
        library.refused(RUN, "returned 2 tensors", call=runner.run)
        library.refused(USAGE, "no outputs yet", call=lambda: runner.get(0))


if __name__ == "__main__":
    main({name: value for name, value in list(globals().items()) if callable(value)})
