import com.example.vision.Detector;
import com.example.vision.Echo;
import com.example.vision.Face;
import com.example.vision.Recurrent;
import com.example.vision.Small;
import com.example.vision.Symbolic;
import java.io.File;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.adt.runtime.AdtException;
import org.adt.runtime.HalfTensor;
import org.adt.runtime.RunnerOptions;
import org.adt.runtime.Tensor;

/** What generated classes do in a JVM: `RunnerCases CASE MODELS DATA`, one case a process. */
public final class RunnerCases {
    private static File models;
    private static Path data;

    private RunnerCases() {}

    public static void main(String[] arguments) throws Exception {
        models = new File(arguments[1]);
        data = new File(arguments[2]).toPath();
        switch (arguments[0]) {
            case "everything" -> everything();
            case "buildProgress" -> buildProgress();
            case "devices" -> devices();
            default -> throw new AssertionError(arguments[0]);
        }
        System.out.println("done");
    }

    private static void everything() throws Exception {
        elements();
        inPlace();
        symbolic();
        entries();
        picture();
        halves();
        refused();
        sessions();
        ownExecutors();
        closed();
        sharedByThreads();
        closedWhileRunning();
        threadOptions();
        nullPointers();
    }

    /** MODELS has the small model, for OpenCL. */
    private static void buildProgress() throws Exception {
        File cache = data.resolve("programs").toFile();
        Thread loading = Thread.currentThread();
        List<String> calls = new ArrayList<>();
        RunnerOptions options =
                new RunnerOptions.Builder()
                        .programCache(cache)
                        .buildProgress(
                                (done, total) -> {
                                    expect(Thread.currentThread() == loading, "another thread");
                                    calls.add(done + "/" + total);
                                })
                        .build();
        RunnerOptions throwing =
                options.toBuilder()
                        .buildProgress(
                                (done, total) -> {
                                    throw new IllegalStateException("at " + done);
                                })
                        .build();
        Exception error =
                thrown(IllegalStateException.class, () -> Small.load(model("small"), throwing));
        expect(error.getMessage().equals("at 0"), error.getMessage());
        try (Small small = Small.load(model("small"), options)) {
            String total = calls.get(0).substring(2);
            expect(calls.get(0).startsWith("0/") && !total.equals("0"), calls.toString());
            expect(calls.get(calls.size() - 1).equals(total + "/" + total), calls.toString());
            small.run(new Small.Inputs());
        }
        calls.clear();
        try (Small small = Small.load(model("small"), options)) {
            expect(small.info().programCache().equals("hit"), small.info().toString());
            expect(calls.isEmpty(), calls.toString());
        }
    }

    /** MODELS has the small model for OpenCL, which is not there, and DATA has it for the CPU. */
    private static void devices() throws Exception {
        File opencl = model("small");
        File cpu = data.resolve("small").toFile();
        RunnerOptions none = RunnerOptions.DEFAULTS;
        float[] x = {1, 2, 3, 4};
        AdtException absent = thrown(AdtException.class, () -> Small.load(opencl));
        expect(absent.kind() == AdtException.Kind.NO_DEVICE, absent.kind());
        try (Small small = Small.load(List.of(opencl, cpu), none)) {
            expect(small.info().device().equals("cpu"), small.info());
            expect(small.info().absentDevices().equals(List.of(absent.problem())), small.info());
            expect(close(small.run(x), product(x)), "the second package's result");
            try (Small session = small.session()) {
                expect(session.info().absentDevices().size() == 1, session.info());
            }
        }
        RunnerOptions several = none.toBuilder().devices("cpu:7", "abacus", "cpu").build();
        try (Small small = Small.load(cpu, several)) {
            expect(small.info().absentDevices().size() == 2, small.info().absentDevices());
        }
        RunnerOptions.Device[] inOrder = {RunnerOptions.Device.OPENCL, RunnerOptions.Device.CPU};
        RunnerOptions other = none.toBuilder().devices(inOrder).build();
        AdtException mismatch = thrown(AdtException.class, () -> Small.load(cpu, other));
        expect(mismatch.kind() == AdtException.Kind.MISMATCH, mismatch.kind()); // not for OpenCL
        thrown(AdtException.class, () -> Small.load(List.of(model("none"), cpu), none));
        thrown(IllegalArgumentException.class, () -> Small.load(List.of(), none));
    }

    private static File model(String name) {
        return new File(models, name);
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
                System.out.println("  " + why);
                return type.cast(why);
            }
            throw why;
        }
        throw new AssertionError(type + " was not thrown");
    }

    /** Arrays of every element type go in and come out the same. */
    private static void elements() {
        try (Echo echo = Echo.load(model("echo"))) {
            Echo.Inputs inputs = new Echo.Inputs();
            float[] floats = new float[24];
            double[] doubles = new double[24];
            byte[] bytes = new byte[24];
            short[] shorts = new short[24];
            int[] ints = new int[24];
            long[] longs = new long[24];
            boolean[] booleans = new boolean[24];
            for (int i = 0; i < 24; i++) {
                floats[i] = i / 8f - 1;
                doubles[i] = i / 3.0 - 4;
                bytes[i] = (byte) (i * 11);
                shorts[i] = (short) (i * 2731);
                ints[i] = i * 178956971;
                longs[i] = i * 768614336404564651L;
                booleans[i] = i % 3 == 0;
            }
            inputs.inFloat16().set(floats);
            inputs.inFloat32().set(floats);
            inputs.inFloat64().set(doubles);
            inputs.inInt8().set(bytes);
            inputs.inUint8().set(bytes);
            inputs.inInt16().set(shorts);
            inputs.inUint16().set(shorts);
            inputs.inInt32().set(ints);
            inputs.inUint32().set(ints);
            inputs.inInt64().set(longs);
            inputs.inUint64().set(longs);
            inputs.inBool().set(booleans);
            inputs.inScalar().set(new float[] {42});
            inputs.inEmpty().set(new int[0]);
            Echo.Outputs outputs = echo.run(inputs);
            expect(Arrays.equals(outputs.outFloat16().toArray(), floats), "float16");
            expect(Arrays.equals(outputs.outFloat32().toArray(), floats), "float32");
            expect(Arrays.equals(outputs.outFloat64().toArray(), doubles), "float64");
            expect(Arrays.equals(outputs.outInt8().toArray(), bytes), "int8");
            expect(Arrays.equals(outputs.outUint8().toArray(), bytes), "uint8");
            expect(Arrays.equals(outputs.outInt16().toArray(), shorts), "int16");
            expect(Arrays.equals(outputs.outUint16().toArray(), shorts), "uint16");
            expect(Arrays.equals(outputs.outInt32().toArray(), ints), "int32");
            expect(Arrays.equals(outputs.outUint32().toArray(), ints), "uint32");
            expect(Arrays.equals(outputs.outInt64().toArray(), longs), "int64");
            expect(Arrays.equals(outputs.outUint64().toArray(), longs), "uint64");
            expect(Arrays.equals(outputs.outBool().toArray(), booleans), "bool");
            expect(outputs.outScalar().toArray()[0] == 42, "scalar");
            expect(outputs.outScalar().shape().length == 0, "scalar");
            expect(outputs.outEmpty().toArray().length == 0, "empty");
            expect(Echo.Inputs.IN_EMPTY_SHAPE.equals(List.of(0L, 3L)), Echo.Inputs.IN_EMPTY_SHAPE);
        }
    }

    private static float[] product(float[] x) {
        float[] y = new float[3];
        for (int column = 0; column < 3; column++) {
            for (int row = 0; row < 4; row++) {
                y[column] += x[row] * ((row * 3 + column) / 10f - 0.5f);
            }
            y[column] = Math.max(0, y[column]);
        }
        return y;
    }

    private static boolean close(float[] found, float[] wanted) {
        boolean same = found.length == wanted.length;
        for (int i = 0; same && i < wanted.length; i++) {
            same = Math.abs(found[i] - wanted[i]) < 1e-5;
        }
        return same;
    }

    /** A buffer is read where it lies, aligned or not, and a part of one is a part. */
    private static void inPlace() {
        try (Small small = Small.load(model("small"))) {
            Small.Inputs inputs = new Small.Inputs();
            for (int offset : new int[] {0, 4, 64, 100}) {
                ByteBuffer in = ByteBuffer.allocateDirect(256).order(ByteOrder.nativeOrder());
                in.position(offset).limit(offset + 16);
                inputs.x().use(in);
                for (int run = 1; run < 4; run++) {
                    float[] x = {run, 2, -3, offset};
                    for (int i = 0; i < 4; i++) {
                        in.putFloat(offset + 4 * i, x[i]);
                    }
                    try (Small.Outputs outputs = small.run(inputs)) {
                        float[] y = outputs.y().toArray();
                        expect(close(y, product(x)), Arrays.toString(y));
                    }
                }
            }
            Small.Inputs own = new Small.Inputs();
            own.x().buffer().put(new float[] {1, 2, 3, 4});
            expect(close(small.run(own).y().toArray(), product(new float[] {1, 2, 3, 4})), "own");
            float[] given = {4, 3, 2, 1};
            expect(close(small.run(given), product(given)), "an array");
        }
    }

    private static void symbolic() throws Exception {
        try (Symbolic model = Symbolic.load(model("symbolic"))) {
            Symbolic.Inputs inputs = new Symbolic.Inputs();
            thrown(IllegalStateException.class, () -> model.run(inputs));
            for (int length : new int[] {3, 5, 2}) {
                float[] values = new float[length];
                Arrays.fill(values, length);
                inputs.a().set(values, length);
                inputs.b().resize(length);
                inputs.b().buffer().put(values);
                Arrays.fill(values, 2 * length);
                try (Symbolic.Outputs outputs = model.run(inputs)) {
                    expect(Arrays.equals(outputs.z().toArray(), values), length);
                    expect(Arrays.equals(outputs.z().shape(), new long[] {length}), length);
                }
            }
            expect(Symbolic.Inputs.A_SHAPE.equals(List.of(-1L)), Symbolic.Inputs.A_SHAPE);
            thrown(IllegalArgumentException.class, () -> inputs.a().set(new float[2]));
            thrown(IllegalArgumentException.class, () -> inputs.a().resize(1, 2));
            thrown(IllegalArgumentException.class, () -> inputs.a().resize(-1));
            thrown(IllegalArgumentException.class, () -> inputs.a().set(new float[0], 1L << 40));
            inputs.a().resize(4);
            AdtException why =
                    thrown(AdtException.class, () -> model.run(inputs)); // b has another length
            expect(why.kind() == AdtException.Kind.INPUT, why.kind());
        }
    }

    private static void entries() {
        try (Recurrent model = Recurrent.load(model("recurrent"))) {
            Recurrent.EncodeInputs first = new Recurrent.EncodeInputs();
            first.x().set(new float[] {1, 2, 3, 4});
            Recurrent.EncodeOutputs encoded = model.encode(first);
            Recurrent.DecodeInputs second = new Recurrent.DecodeInputs();
            second.s().set(new float[] {10, 20, 30, 40});
            second.h().use(encoded.h());
            Recurrent.DecodeOutputs decoded = model.decode(second);
            expect(close(decoded.y().toArray(), new float[] {12, 24, 36, 48}), "y");
            expect(close(decoded.t().toArray(), new float[] {11, 21, 31, 41}), "t");
            Recurrent.OtherInputs other = new Recurrent.OtherInputs();
            other.k().set(new long[] {1L << 40, 2, 3, 4});
            expect(model.other(other).e().toArray()[0] == 1L << 41, "e");
        }
    }

    /** pixels.bin has the picture; the model's own input is kept for a comparison with numpy's. */
    private static void picture() throws IOException {
        int[] pixels = new int[Face.Inputs.INPUT_WIDTH * Face.Inputs.INPUT_HEIGHT];
        ByteBuffer file = ByteBuffer.wrap(Files.readAllBytes(data.resolve("pixels.bin")));
        file.order(ByteOrder.nativeOrder()).asIntBuffer().get(pixels);
        try (Face face = Face.load(model("face"))) {
            Face.Inputs inputs = new Face.Inputs();
            inputs.setInputPixels(pixels);
            keep(inputs.input(), "picture.bin");
            Face.Outputs outputs = face.run(inputs);
            keep(outputs.output1(), "face.bin");
        }
    }

    private static void keep(Tensor tensor, String name) throws IOException {
        byte[] array = new byte[tensor.bytes().remaining()];
        tensor.bytes().get(array);
        Files.write(data.resolve(name), array);
    }

    /** All half-precision numbers as float, and floats.bin rounded to half precision. */
    private static void halves() throws IOException {
        ByteBuffer all = ByteBuffer.allocate(4 * 65536).order(ByteOrder.nativeOrder());
        for (int bits = 0; bits < 65536; bits++) {
            float value = HalfTensor.toFloat((short) bits);
            all.putFloat(value);
            if (!Float.isNaN(value)) {
                expect(HalfTensor.toHalf(value) == (short) bits, Integer.toHexString(bits));
            }
        }
        Files.write(data.resolve("from_halves.bin"), all.array());
        ByteBuffer floats = ByteBuffer.wrap(Files.readAllBytes(data.resolve("floats.bin")));
        floats.order(ByteOrder.nativeOrder());
        ByteBuffer rounded =
                ByteBuffer.allocate(floats.remaining() / 2).order(ByteOrder.nativeOrder());
        while (floats.hasRemaining()) {
            rounded.putShort(HalfTensor.toHalf(floats.getFloat()));
        }
        Files.write(data.resolve("halves.bin"), rounded.array());
    }

    private static void refused() throws Exception {
        AdtException none = thrown(AdtException.class, () -> Small.load(model("none")));
        expect(none.kind() == AdtException.Kind.PACKAGE, none.kind());
        expect(!none.remedy().isEmpty() && none.getMessage().contains(none.remedy()), none);
        AdtException other = thrown(AdtException.class, () -> Small.load(model("symbolic")));
        expect(other.kind() == AdtException.Kind.MISMATCH, other.kind());
        expect(other.problem().contains("another model"), other);
        RunnerOptions unknown = new RunnerOptions.Builder().devices("abacus").build();
        AdtException device = thrown(AdtException.class, () -> Small.load(model("small"), unknown));
        expect(device.kind() == AdtException.Kind.NO_DEVICE, device.kind());
        expect(device.problem().contains("abacus"), device);
        thrown(IllegalArgumentException.class, () -> Small.load(new File("a\0b")));
        thrown(IllegalArgumentException.class, () -> new RunnerOptions.Builder().threads(-1));
        String odd = "\u65e5\u672c \ud83d\ude00"; // outside of the plane that JNI's own UTF-8 agrees on
        AdtException named = thrown(AdtException.class, () -> Small.load(model(odd)));
        expect(named.problem().contains(odd), named.problem());
        try (Small small = Small.load(model("small"))) {
            Small.Inputs inputs = new Small.Inputs();
            IllegalArgumentException size =
                    thrown(IllegalArgumentException.class, () -> inputs.x().set(new float[5]));
            expect(size.getMessage().contains("x float32[1, 4] has 4 elements"), size);
            thrown(IllegalArgumentException.class, () -> small.run(new float[3]));
            thrown(IllegalArgumentException.class, () -> inputs.x().set(new float[4], 4, 1));
            thrown(IllegalArgumentException.class, () -> inputs.x().resize(2, 4));
            thrown(IllegalArgumentException.class, () -> inputs.x().use(ByteBuffer.allocate(16)));
            thrown(
                    IllegalArgumentException.class,
                    () -> inputs.x().use(ByteBuffer.allocateDirect(15)));
            inputs.x().use(ByteBuffer.allocateDirect(16).asReadOnlyBuffer());
            small.run(inputs);
            thrown(IllegalArgumentException.class, () -> inputs.x().set(new float[4]));
            expect(small.info().device().equals("cpu"), small.info());
            expect(small.info().packageName().equals("small"), small.info());
            expect(small.info().runnerVersion().contains("TVM"), small.info());
            expect(!small.info().deviceName().isEmpty(), small.info());
        }
    }

    private static void sessions() throws Exception {
        Small first = Small.load(model("small"));
        Small second = first.session();
        float[] x = {1, 2, 3, 4};
        float[] y = first.run(x);
        first.close();
        expect(Arrays.equals(second.run(x), y), "the session's result");
        try (Small third = second.session()) {
            expect(Arrays.equals(third.run(x), y), "a session's session");
        }
        second.close();
        thrown(IllegalStateException.class, second::session);
    }

    /** Models with threads of their own run side by side, and so do their sessions. */
    private static void ownExecutors() throws Exception {
        RunnerOptions options = new RunnerOptions.Builder().ownExecutor(true).build();
        float[] x = {1, 2, 3, 4};
        try (Small first = Small.load(model("small"), options);
                Small second = Small.load(model("small"), options);
                Small third = second.session()) {
            expect(executors() >= 3, executors());
            for (Small small : List.of(first, second, third)) {
                expect(close(small.run(x), product(x)), "an executor's result");
            }
        }
    }

    private static long executors() throws IOException {
        long count = 0;
        for (File thread : new File("/proc/self/task").listFiles()) {
            String name = Files.readString(thread.toPath().resolve("comm"));
            count += name.equals("adt-runner\n") ? 1 : 0;
        }
        return count;
    }

    private static void closed() throws Exception {
        Small small = Small.load(model("small"));
        Small second = Small.load(model("small"));
        small.close();
        small.close();
        thrown(IllegalStateException.class, () -> small.run(new Small.Inputs()));
        thrown(IllegalStateException.class, small::info);
        second.run(new Small.Inputs()); // another object on the same package goes on
        second.close();
    }

    /** One object, many threads, each with arrays of its own. */
    private static void sharedByThreads() throws Exception {
        ExecutorService pool = Executors.newFixedThreadPool(4);
        try (Small small = Small.load(model("small"))) {
            List<Future<Integer>> results = new ArrayList<>();
            for (int thread = 0; thread < 4; thread++) {
                int seed = thread;
                Callable<Integer> work =
                        () -> {
                            for (int run = 0; run < 50; run++) {
                                float[] x = {seed, run, seed - run, 1};
                                expect(close(small.run(x), product(x)), "thread " + seed);
                            }
                            return seed;
                        };
                results.add(pool.submit(work));
            }
            for (Future<Integer> result : results) {
                result.get();
            }
        } finally {
            pool.shutdown();
            expect(pool.awaitTermination(60, TimeUnit.SECONDS), "the threads end");
        }
    }

    /** Whoever runs a model that another thread closes gets its result, or is told. */
    private static void closedWhileRunning() throws Exception {
        for (int round = 0; round < 3; round++) {
            Detector model = Detector.load(model("detector"));
            CountDownLatch running = new CountDownLatch(2);
            ExecutorService pool = Executors.newFixedThreadPool(2);
            Callable<Integer> work =
                    () -> {
                        Detector.Inputs inputs = new Detector.Inputs();
                        for (int run = 0; ; run++) {
                            try {
                                float[] result = model.run(inputs).targetLabel().toArray();
                                expect(result.length == 214 && result[0] >= 0, "a whole result");
                            } catch (IllegalStateException expected) {
                                return run;
                            }
                            running.countDown();
                        }
                    };
            Future<Integer> first = pool.submit(work);
            Future<Integer> second = pool.submit(work);
            running.await();
            model.close();
            expect(first.get() + second.get() > 0, "it ran");
            pool.shutdown();
            expect(pool.awaitTermination(60, TimeUnit.SECONDS), "the threads end");
        }
    }

    private static void threadOptions() throws Exception {
        RunnerOptions options = new RunnerOptions.Builder().threads(1).affinity(RunnerOptions.Affinity.ALL).build();
        RunnerOptions wrong = options.toBuilder().affinity("sideways").build();
        float[] x = {1, 2, 3, 4};
        try (Small small = Small.load(model("small"), options)) {
            expect(close(small.run(x), product(x)), "one thread");
            AdtException why =
                    thrown(AdtException.class, () -> Small.load(model("small"), wrong));
            expect(why.kind() == AdtException.Kind.USAGE, why.kind());
        }
    }

    /** The JVM finds null pointers by SIGSEGV: its handler must still be there. */
    private static void nullPointers() {
        int found = 0;
        for (int i = 0; i < 100_000; i++) {
            int[] array = i % 2 == 0 ? null : new int[1];
            try {
                found += array.length;
            } catch (NullPointerException expected) {
                found += 2;
            }
        }
        expect(found == 150_000, found);
    }
}
