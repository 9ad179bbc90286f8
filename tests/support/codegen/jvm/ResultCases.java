package org.adt.runtime;

import com.example.vision.Echo;
import com.example.vision.Recurrent;
import com.example.vision.State;
import com.example.vision.Symbolic;
import java.io.File;
import java.io.IOException;
import java.lang.management.BufferPoolMXBean;
import java.lang.management.ManagementFactory;
import java.nio.ByteBuffer;
import java.nio.FloatBuffer;
import java.nio.ReadOnlyBufferException;
import java.nio.file.Files;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;

/** Outputs where the runs left them: `ResultCases CASE MODELS [COUNT | DATA]`. */
public final class ResultCases {
    private static File models;

    private ResultCases() {}

    public static void main(String[] arguments) throws Exception {
        models = new File(arguments[1]);
        switch (arguments[0]) {
            case "everything" -> everything();
            case "opencl" -> opencl(new File(arguments[2], "state"));
            case "cycles" -> cycles(Integer.parseInt(arguments[2]));
            default -> throw new AssertionError(arguments[0]);
        }
        System.out.println("done");
    }

    private static void everything() throws Exception {
        outlive();
        nothingIsAllocated();
        chained();
        handedThrough();
        closed();
        closedWhileRead();
        readOnly();
        mismatched();
        dropped();
    }

    private static State.Inputs state(float s, float h) {
        State.Inputs inputs = new State.Inputs();
        inputs.s().set(new float[] {s, s, s, s});
        inputs.h().set(new float[] {h, h, h, h});
        return inputs;
    }

    /** Results are what they were after later runs, and after their model. */
    private static void outlive() {
        List<State.Outputs> results = new ArrayList<>();
        try (State state = State.load(model("state"))) {
            for (int run = 0; run < 20; run++) {
                results.add(state.run(state(run, 1)));
            }
        }
        NativeHandle.awaitReleases();
        for (int run = 0; run < 20; run++) {
            try (State.Outputs result = results.get(run)) {
                same(result.t().buffer(), run + 1);
                same(FloatBuffer.wrap(result.y().toArray()), run + 1);
            }
        }
        expect(NativeHandle.count() == 0, NativeHandle.count());
    }

    /** Neither a run nor a look at its outputs; the memory of closed ones is used again. */
    private static void nothingIsAllocated() {
        try (State state = State.load(model("state"))) {
            State.Inputs inputs = state(1, 2);
            state.run(inputs).close();
            long buffers = directBuffers();
            List<ByteBuffer> left = new ArrayList<>(); // compared by address, and never read
            for (int run = 0; run < 50; run++) {
                try (State.Outputs result = state.run(inputs)) {
                    same(result.y().buffer(), 3);
                    same(result.t().buffer(), 2);
                    expect(NativeRunner.overlap(result.y().bytes(), result.y().bytes()), "a copy");
                    expect(!NativeRunner.overlap(result.y().bytes(), result.t().bytes()), "one array");
                    left.add(result.y().bytes());
                }
            }
            expect(directBuffers() == buffers, directBuffers() - buffers);
            ByteBuffer last = left.get(left.size() - 1);
            long again = left.stream().filter(one -> NativeRunner.overlap(one, last)).count();
            expect(again > 10, again);
        }
    }

    private static long directBuffers() {
        return ManagementFactory.getPlatformMXBeans(BufferPoolMXBean.class).stream()
                .filter(pool -> pool.getName().equals("direct"))
                .mapToLong(BufferPoolMXBean::getCount)
                .sum();
    }

    /** One model's output is another's input, of another session or package. */
    private static void chained() {
        try (Echo echo = Echo.load(model("echo"));
                Echo second = echo.session();
                Recurrent recurrent = Recurrent.load(model("recurrent"));
                Symbolic sum = Symbolic.load(model("symbolic"))) {
            float[] values = new float[24];
            Arrays.fill(values, 7);
            Echo.Inputs inputs = new Echo.Inputs();
            inputs.inFloat32().set(values);
            try (Echo.Outputs given = echo.run(inputs)) {
                Echo.Inputs next = new Echo.Inputs();
                next.inFloat32().use(given.relu());
                try (Echo.Outputs result = second.run(next)) {
                    given.close(); // the second session has it, too
                    same(result.outFloat32().buffer(), 7);
                    // Through the input, out again: all the same memory.
                    Echo.Inputs third = new Echo.Inputs();
                    third.inFloat32().use(result.outFloat32());
                    try (Echo.Outputs last = echo.run(third)) {
                        ByteBuffer end = last.outFloat32().bytes();
                        expect(NativeRunner.overlap(end, result.outFloat32().bytes()), "a copy");
                    }
                }
                next.inFloat32().set(new float[24]); // in memory of its own again
                same(FloatBuffer.wrap(second.run(next).relu().toArray()), 0);
            }
            Recurrent.EncodeInputs first = new Recurrent.EncodeInputs();
            first.x().set(new float[] {5, 5, 5, 5});
            try (Recurrent.EncodeOutputs encoded = recurrent.encode(first)) {
                Symbolic.Inputs both = new Symbolic.Inputs();
                both.a().use(encoded.h()); // an open extent takes the output's
                both.b().use(encoded.h());
                first.x().set(new float[4]);
                recurrent.encode(first).close();
                try (Symbolic.Outputs result = sum.run(both)) {
                    same(result.z().buffer(), 20);
                    expect(result.z().elements() == 4, result.z());
                }
            }
        }
    }

    /** An input that comes out again does not change with the input, nor goes with its buffer. */
    private static void handedThrough() throws Exception {
        try (Echo echo = Echo.load(model("echo"))) {
            Echo.Inputs inputs = new Echo.Inputs();
            float[] values = new float[24];
            Arrays.fill(values, 3);
            inputs.inFloat32().set(values);
            Echo.Outputs result = echo.run(inputs);
            inputs.inFloat32().buffer().put(new float[24]);
            same(result.outFloat32().buffer(), 3);
            expect(
                    !NativeRunner.overlap(result.outFloat32().bytes(), inputs.inFloat32().bytes()),
                    "the input's own memory");
            Echo.Inputs next = new Echo.Inputs();
            next.inFloat32().use(result.outFloat32());
            try (Echo.Outputs again = echo.run(next)) {
                result.close();
                same(again.outFloat32().buffer(), 3);
            }
            thrown(IllegalStateException.class, () -> result.outFloat32().buffer());
        }
    }

    private static void closed() throws Exception {
        try (State state = State.load(model("state"))) {
            State.Outputs result = state.run(state(1, 1));
            State.Inputs next = state(0, 0);
            next.s().use(result.t());
            result.close();
            result.close();
            thrown(IllegalStateException.class, () -> result.y().buffer());
            thrown(IllegalStateException.class, () -> result.y().bytes());
            thrown(IllegalStateException.class, () -> result.y().toArray());
            IllegalStateException why =
                    thrown(IllegalStateException.class, () -> state.run(next));
            expect(why.getMessage().equals("output t is closed"), why);
            next.s().set(new float[] {4, 4, 4, 4});
            try (State.Outputs after = state.run(next)) {
                same(after.t().buffer(), 5);
            }
        }
    }

    /** What is read when it is closed is released after that. */
    private static void closedWhileRead() throws Exception {
        try (State state = State.load(model("state"))) {
            State.Outputs result = state.run(state(3, 1));
            FloatBuffer buffer = result.t().buffer();
            result.t()
                    .hold(
                            () -> {
                                result.close();
                                for (int run = 10; run < 30; run++) {
                                    state.run(state(run, run)).close();
                                }
                                same(buffer, 4);
                            });
            awaitHandles(1); // the model
        }
    }

    private static void readOnly() throws Exception {
        try (State state = State.load(model("state"))) {
            State.Outputs result = state.run(state(1, 1));
            thrown(ReadOnlyBufferException.class, () -> result.y().buffer().put(0, 1));
            thrown(UnsupportedOperationException.class, () -> result.y().set(new float[4]));
            thrown(UnsupportedOperationException.class, () -> result.y().resize(1, 4));
            ByteBuffer buffer = ByteBuffer.allocateDirect(16);
            thrown(UnsupportedOperationException.class, () -> result.y().use(buffer));
            thrown(UnsupportedOperationException.class, () -> result.y().use(result.t()));
            same(result.y().buffer(), 2);
            result.close();
        }
    }

    private static void mismatched() throws Exception {
        try (Recurrent recurrent = Recurrent.load(model("recurrent"))) {
            Recurrent.EncodeOutputs encoded = recurrent.encode(new Recurrent.EncodeInputs());
            Recurrent.OtherInputs other = new Recurrent.OtherInputs();
            thrown(IllegalArgumentException.class, () -> other.c().use(encoded.h())); // 5, not 4
            thrown(IllegalArgumentException.class, () -> other.k().use(encoded.h())); // int64
            encoded.close();
        }
    }

    /** A buffer keeps the array of outputs that nobody has any more. */
    private static void dropped() throws Exception {
        try (State state = State.load(model("state"))) {
            FloatBuffer kept = state.run(state(8, 1)).y().buffer();
            for (int run = 0; run < 20; run++) {
                state.run(state(run, run));
                System.gc();
            }
            awaitHandles(2); // the model, and the one array
            same(kept, 9);
        }
    }

    private static void awaitHandles(int count) throws InterruptedException {
        for (int tries = 0; NativeHandle.count() > count; tries++) {
            expect(tries < 10_000, NativeHandle.count());
            System.gc();
            Thread.sleep(1);
        }
    }

    /** On OpenCL an output is read when it is looked at, once, and a chain of models reads none. */
    private static void opencl(File cpu) throws Exception {
        try (State state = State.load(model("state"));
                State host = State.load(cpu)) {
            expect(state.info().device().equals("opencl"), state.info());
            State.Inputs inputs = state(1, 10);
            State.Inputs next = state(0, 10);
            state.run(inputs).close();
            long buffers = directBuffers();
            State.Outputs result = state.run(inputs);
            for (int run = 0; run < 10; run++) {
                next.s().use(result.t());
                State.Outputs following = state.run(next);
                result.close();
                result = following;
            }
            expect(directBuffers() == buffers, directBuffers() - buffers);
            same(result.t().buffer(), 12);
            ByteBuffer read = result.t().bytes();
            expect(NativeRunner.overlap(read, result.t().bytes()), "read twice");
            same(result.y().buffer(), 21);
            expect(directBuffers() == buffers + 2, directBuffers() - buffers);
            next.s().use(result.t());
            try (State.Outputs onCpu = host.run(next)) { // through the program's memory
                same(onCpu.t().buffer(), 13);
                inputs.s().use(onCpu.t());
                try (State.Outputs onGpu = state.run(inputs)) {
                    same(onGpu.t().buffer(), 14);
                }
            }
            result.close();
            State.Outputs last = result;
            thrown(IllegalStateException.class, () -> last.t().buffer());
        }
    }

    /** Results are closed, dropped, kept by a buffer or an input; says what the process holds. */
    private static void cycles(int count) throws Exception {
        State.Inputs next = state(1, 1);
        FloatBuffer kept = null;
        try (State state = State.load(model("state"))) {
            for (int cycle = 0; cycle < count; cycle++) {
                State.Outputs result = state.run(next);
                if (cycle % 3 == 0) {
                    kept = result.y().buffer();
                }
                if (cycle % 4 == 0) {
                    next = state(1, 1);
                    next.s().use(result.t());
                } else if (cycle % 4 == 1) {
                    next.s().set(new float[] {1, 1, 1, 1});
                    result.close();
                }
                expect(kept == null || kept.get(0) >= 2, kept);
                if ((cycle + 1) % (count / 4) == 0) {
                    next = state(1, 1);
                    kept = null;
                    result = null;
                    awaitHandles(1);
                    usage();
                }
            }
        }
    }

    private static void usage() throws IOException {
        String memory = "";
        for (String line : Files.readAllLines(new File("/proc/self/status").toPath())) {
            memory = line.startsWith("RssAnon:") ? line.replaceAll("[^0-9]", "") : memory;
        }
        int maps = Files.readAllLines(new File("/proc/self/maps").toPath()).size();
        int fds = new File("/proc/self/fd").list().length;
        System.out.println("holds fds=" + fds + " maps=" + maps + " kb=" + memory);
    }

    private static File model(String name) {
        return new File(models, name);
    }

    private static void same(FloatBuffer found, float wanted) {
        expect(found.hasRemaining(), "no values");
        for (int i = found.position(); i < found.limit(); i++) {
            expect(found.get(i) == wanted, found.get(i) + ", not " + wanted);
        }
    }

    private static void expect(boolean truth, Object what) {
        if (!truth) {
            throw new AssertionError(what);
        }
    }

    private interface Work {
        void run() throws Exception;
    }

    private static <T extends Exception> T thrown(Class<T> type, Work work) throws Exception {
        try {
            work.run();
        } catch (Exception why) {
            if (type.isInstance(why)) {
                return type.cast(why);
            }
            throw why;
        }
        throw new AssertionError(type + " was not thrown");
    }
}
