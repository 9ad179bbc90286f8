package org.adt.runtime;

import androidx.annotation.NonNull;
import java.io.File;
import java.nio.Buffer;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.Iterator;
import java.util.List;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;

/**
 * A loaded package of any model. It is public for the classes that {@code adt generate} writes, one
 * for each model; a program calls those.
 *
 * <p>Any thread may call it. One run is done after the other; nothing else waits for a run.
 */
public final class NativeRunner implements AutoCloseable {
    /**
     * Alignment of the inputs' own arrays, in bytes: a multiple of what packages ask for. A package
     * that asks for more gets a copy of them.
     */
    static final int ALIGNMENT = 256;

    static {
        System.loadLibrary("adt_jni");
    }

    /** By entry and input, what the model may read: it must not be freed before the handle. */
    private final ByteBuffer[][] bound;
    private final NativeHandle handle;
    /** Reasons why devices that were to be tried first are not used. */
    private final List<String> absent = new ArrayList<>();
    /** Does the runs that are not waited for, one after the other; its thread ends when idle. */
    private final ThreadPoolExecutor queue =
            new ThreadPoolExecutor(
                    1,
                    1,
                    1,
                    TimeUnit.SECONDS,
                    new LinkedBlockingQueue<>(),
                    NativeRunner::thread,
                    (run, queue) -> {
                        throw new IllegalStateException("the model is closed");
                    });

    private NativeRunner(long runner) {
        bound = new ByteBuffer[entryCount(runner)][];
        for (int entry = 0; entry < bound.length; entry++) {
            bound[entry] = new ByteBuffer[inputCount(runner, entry)];
        }
        handle = new NativeHandle("the model", this, runner, bound, NativeRunner::free);
        queue.allowCoreThreadTimeOut(true);
    }

    private static Thread thread(Runnable work) {
        Thread thread = new Thread(work, "adt-runs");
        thread.setDaemon(true);
        return thread;
    }

    /**
     * Load the package in the first of some directories whose device is there: mod.so, mod.json and
     * mod.params.
     *
     * @param signature what {@link #signature(long)} must be
     */
    @NonNull public static NativeRunner open(
            @NonNull List<File> directories,
            @NonNull RunnerOptions options,
            @NonNull String signature) {
        return first(directories, directory -> open(directory, options, signature));
    }

    private static NativeRunner open(File directory, RunnerOptions options, String signature) {
        byte[] path = utf8(directory.getPath());
        return open(
                options,
                signature,
                device ->
                        create(
                                path,
                                device,
                                utf8(options.programCache()),
                                utf8(options.scratch()),
                                options.ownExecutor(),
                                options.buildProgress()));
    }

    /**
     * Load a package whose files lie in parts of open files and whose library the application
     * carries.
     *
     * @param signature what {@link #signature(long)} must be
     */
    static NativeRunner open(
            FilePart manifest,
            FilePart params,
            String library,
            RunnerOptions options,
            String signature) {
        byte[] name = utf8(library);
        return open(
                options,
                signature,
                device ->
                        createFrom(
                                manifest.fd,
                                manifest.offset,
                                manifest.size,
                                params.fd,
                                params.offset,
                                params.size,
                                name,
                                device,
                                utf8(options.programCache()),
                                utf8(options.scratch()),
                                options.ownExecutor(),
                                options.buildProgress()));
    }

    /** A part of an open file. */
    static final class FilePart {
        private final int fd;
        private final long offset;
        private final long size;

        /**
         * @param fd descriptor, read only while the package is loaded
         * @param offset where the part begins
         * @param size its bytes; -1: all to the file's end
         */
        FilePart(int fd, long offset, long size) {
            this.fd = fd;
            this.offset = offset;
            this.size = size;
        }
    }

    /** Android's name of the processor architecture that the process runs as. */
    static String architecture() {
        return text(abi());
    }

    private interface Loading {
        /** A loaded package; 0 when that fails. */
        long load(byte[] device);
    }

    private static NativeRunner open(RunnerOptions options, String signature, Loading loading) {
        prepare(options);
        List<String> devices = options.devices();
        return first(
                devices.isEmpty() ? Collections.<String>singletonList(null) : devices,
                device -> checked(loading.load(utf8(device)), signature));
    }

    interface Opening<T> {
        NativeRunner open(T choice);
    }

    /** The first choice whose device is there; nothing else that is wrong leads to the next one. */
    static <T> NativeRunner first(List<T> choices, Opening<T> opening) {
        if (choices.isEmpty()) {
            throw new IllegalArgumentException("there is no package to be loaded");
        }
        List<String> absent = new ArrayList<>();
        for (Iterator<T> rest = choices.iterator(); ; ) {
            try {
                NativeRunner runner = opening.open(rest.next());
                runner.absent.addAll(0, absent);
                return runner;
            } catch (AdtException why) {
                if (why.kind() != AdtException.Kind.NO_DEVICE || !rest.hasNext()) {
                    throw why;
                }
                absent.add(why.problem());
            }
        }
    }

    /** Prepare the process for a package. */
    private static void prepare(RunnerOptions options) {
        if (!fits()) {
            throw new AdtException(
                    AdtException.Kind.MISMATCH,
                    "libadt_runner.so is not the one that adt_jni was compiled for",
                    "Compile it again with the headers of the bundle whose libraries are used.");
        }
        NativeHandle.awaitReleases(); // a package's library may be in a process once
        if (options.threads() != 0 || options.affinity() != null) {
            check(setThreads(options.threads(), utf8(options.affinity())));
        }
    }

    private static NativeRunner checked(long runner, String signature) {
        if (runner == 0) {
            throw failure();
        }
        String found = signature(runner);
        if (!found.equals(signature)) {
            free(runner);
            throw new AdtException(
                    AdtException.Kind.MISMATCH,
                    "the package is of another model: it has " + found + ", not " + signature,
                    "Load the package that the class was generated from, or generate it again:"
                            + " adt generate.");
        }
        return new NativeRunner(runner);
    }

    /** Open another session of the package, which shares its weights. */
    @NonNull public NativeRunner session() {
        long runner = handle.enter();
        try {
            long session = createSession(runner);
            if (session == 0) {
                throw failure();
            }
            NativeRunner created = new NativeRunner(session);
            created.absent.addAll(absent);
            return created;
        } finally {
            handle.leave();
        }
    }

    /** Describe what the package takes and gives: "main(x float32[1, 3]) -> (y float32[1, -1])". */
    private static String signature(long runner) {
        StringBuilder found = new StringBuilder();
        int entries = count(entryCount(runner));
        for (int entry = 0; entry < entries; entry++) {
            found.append(entry == 0 ? "" : "; ").append(text(entryName(runner, entry))).append("(");
            int inputs = count(inputCount(runner, entry));
            for (int i = 0; i < inputs; i++) {
                String name = text(inputName(runner, entry, i));
                String type = text(inputType(runner, entry, i));
                found.append(i == 0 ? "" : ", ").append(name).append(" ").append(type);
                append(found, inputShape(runner, entry, i));
            }
            found.append(") -> (");
            int outputs = count(outputCount(runner, entry));
            for (int i = 0; i < outputs; i++) {
                String name = text(outputName(runner, entry, i));
                String type = text(outputType(runner, entry, i));
                found.append(i == 0 ? "" : ", ").append(name).append(" ").append(type);
                append(found, outputShape(runner, entry, i));
            }
            found.append(")");
        }
        return found.toString();
    }

    private static void append(StringBuilder text, long[] shape) {
        if (shape == null) {
            throw failure();
        }
        text.append(Arrays.toString(shape));
    }

    /** Describe what is loaded. */
    @NonNull public RunnerInfo info() {
        long runner = handle.enter();
        try {
            return new RunnerInfo(
                    text(packageName(runner)),
                    text(device(runner)),
                    text(deviceName(runner)),
                    text(deviceDriver(runner)),
                    absent,
                    text(programCache(runner)),
                    text(programCacheWarning(runner)),
                    text(version()));
        } finally {
            handle.leave();
        }
    }

    /** Run an entry: set its inputs, and have outputs, which are new, take what it leaves. */
    public void run(int entry, @NonNull Tensor[] inputs, @NonNull Tensor[] outputs) {
        run(entry, inputs, outputs, this::run);
    }

    /** Ask for a run; *over* is called at its end. */
    Run start(int entry, Tensor[] inputs, Tensor[] outputs, Over over) {
        Run run = new Run(entry, inputs, outputs, over);
        queue.execute(run);
        return run;
    }

    /** Listener to the end of a run, called by any thread with what went wrong, or null. */
    interface Over {
        void over(Throwable error);
    }

    /** A run that was asked for. */
    final class Run implements Runnable {
        private final int entry;
        private final Tensor[] inputs;
        private final Tensor[] outputs;
        private final Over over;
        private boolean cancelled;
        /** 0: it has not begun, or is over. */
        private long ticket;

        private Run(int entry, Tensor[] inputs, Tensor[] outputs, Over over) {
            this.entry = entry;
            this.inputs = inputs;
            this.outputs = outputs;
            this.over = over;
        }

        /** End it before its next kernel, unless it is over by then. */
        void cancel() {
            synchronized (this) {
                cancelled = true;
                if (ticket != 0) {
                    cancelRun(ticket);
                }
            }
            if (queue.remove(this)) {
                over.over(null);
            }
        }

        @Override
        public void run() {
            Throwable error = null;
            try {
                NativeRunner.this.run(entry, inputs, outputs, this::await);
            } catch (RuntimeException | Error why) {
                error = why;
            }
            over.over(error);
        }

        private int await(long runner, int entry) {
            synchronized (this) {
                ticket = startRun(runner, entry);
                if (ticket == 0) {
                    return lastStatus();
                }
                if (cancelled) {
                    cancelRun(ticket);
                }
            }
            int status = awaitRun(ticket);
            synchronized (this) {
                freeRun(ticket);
                ticket = 0;
            }
            return status;
        }
    }

    private interface Execution {
        /** Run the entry to its end; a status. */
        int run(long runner, int entry);
    }

    private synchronized void run(
            int entry, Tensor[] inputs, Tensor[] outputs, Execution execution) {
        long runner = handle.enter();
        try {
            for (int i = 0; i < inputs.length; i++) {
                set(inputs[i], runner, entry, i);
            }
            check(execution.run(runner, entry));
            for (int i = 0; i < outputs.length; i++) {
                take(outputs[i], runner, entry, i);
            }
        } catch (RuntimeException | Error why) {
            release(outputs);
            throw why;
        } finally {
            handle.leave();
        }
    }

    private void set(Tensor input, long runner, int entry, int number) {
        if (input.setWhereItLies(runner, entry, number)) {
            bound[entry][number] = null;
            return;
        }
        ByteBuffer array = input.array();
        long[] shape = input.symbolicShape();
        check(setInput(runner, entry, number, array, array.capacity(), shape));
        bound[entry][number] = array;
    }

    private void take(Tensor output, long runner, int entry, int number) {
        long[] shape = resultShape(runner, entry, number);
        long tensor = shape == null ? 0 : takeOutput(runner, entry, number);
        if (tensor == 0) {
            throw failure();
        }
        output.take(new NativeTensor(output.name(), tensor), shape);
        output.separate(bound[entry]);
    }

    /** Release the model once nothing runs it; a second call does nothing. */
    @Override
    public void close() {
        handle.close();
        queue.shutdown(); // queued runs find the model closed
    }

    /** Give back the memory that models keep for their next runs. */
    public static void trimMemory() {
        trim();
    }

    /** Release the arrays of outputs; a second call does nothing. */
    public static void release(@NonNull Tensor[] outputs) {
        for (Tensor output : outputs) {
            output.release();
        }
    }

    /** A direct buffer of so many bytes that a model reads where it lies. */
    static ByteBuffer allocate(int size) {
        ByteBuffer room = ByteBuffer.allocateDirect(Math.addExact(size, ALIGNMENT));
        int start = (ALIGNMENT - (int) misalignment(room, ALIGNMENT)) % ALIGNMENT;
        Buffer window = room; // ByteBuffer has these methods, too, but not on every Android
        window.limit(start + size);
        window.position(start);
        return room.slice().order(ByteOrder.nativeOrder());
    }

    static void check(int status) {
        if (status != 0) {
            throw failure();
        }
    }

    private static int count(int number) {
        if (number < 0) {
            throw failure();
        }
        return number;
    }

    private static AdtException failure() {
        AdtException.Kind kind = AdtException.Kind.of(lastStatus());
        return new AdtException(kind, text(lastError()), text(lastRemedy()));
    }

    private static String text(byte[] utf8) {
        if (utf8 == null) {
            throw failure();
        }
        return new String(utf8, StandardCharsets.UTF_8);
    }

    private static byte[] utf8(File path) {
        return path == null ? null : utf8(path.getPath());
    }

    /** With the zero that C ends text with; null stays null. */
    private static byte[] utf8(String text) {
        if (text == null) {
            return null;
        }
        if (text.indexOf('\0') >= 0) {
            throw new IllegalArgumentException("text with a zero character");
        }
        return (text + '\0').getBytes(StandardCharsets.UTF_8);
    }

    /** Return true if libadt_runner.so is one that this library was compiled for. */
    static native boolean fits();

    /** Return the version of libadt_runner.so. */
    static native byte[] version();

    /** Android's name of the processor architecture that this library is for. */
    static native byte[] abi();

    /** Return the status of this thread's last failure: 0, or that of a kind of AdtException. */
    static native int lastStatus();

    /** Return its text. */
    static native byte[] lastError();

    /** Return its remedy. */
    static native byte[] lastRemedy();

    /** Set the threads that work for the models this thread runs; a status. */
    static native int setThreads(int count, byte[] affinity);

    /** Load the package in a directory; 0 when that fails. */
    static native long create(
            byte[] directory, byte[] device, byte[] programCache, byte[] scratch,
            boolean ownExecutor, RunnerOptions.BuildProgress buildProgress);

    /**
     * Load mod.json and mod.params from parts of open files, and the library by name; 0 when that
     * fails.
     */
    static native long createFrom(
            int manifestFd, long manifestOffset, long manifestSize, int paramsFd, long paramsOffset,
            long paramsSize, byte[] library, byte[] device, byte[] programCache, byte[] scratch,
            boolean ownExecutor, RunnerOptions.BuildProgress buildProgress);

    /** Another session of a loaded package; 0 when that fails. */
    static native long createSession(long runner);

    /** Release a loaded package. */
    static native void free(long runner);

    /** Give back the memory that is kept for later runs. */
    static native void trim();

    /** Name of the package. */
    static native byte[] packageName(long runner);

    /** cpu or opencl. */
    static native byte[] device(long runner);

    /** Return the device's name of itself. */
    static native byte[] deviceName(long runner);

    /** Version of its driver; empty for a CPU. */
    static native byte[] deviceDriver(long runner);

    /** Return the state of the compiled OpenCL kernels. */
    static native byte[] programCache(long runner);

    /** Return a warning about them; empty: there is none. */
    static native byte[] programCacheWarning(long runner);

    /** Return the number of the package's functions; -1 when that fails. */
    static native int entryCount(long runner);

    /** Name of one of them. */
    static native byte[] entryName(long runner, int entry);

    /** Return its number of inputs; -1 when that fails. */
    static native int inputCount(long runner, int entry);

    /** Return its number of outputs; -1 when that fails. */
    static native int outputCount(long runner, int entry);

    /** Name of an input. */
    static native byte[] inputName(long runner, int entry, int input);

    /** Its element type. */
    static native byte[] inputType(long runner, int entry, int input);

    /** Its extents; -1 for a symbolic one. */
    static native long[] inputShape(long runner, int entry, int input);

    /** Name of an output. */
    static native byte[] outputName(long runner, int entry, int output);

    /** Its element type. */
    static native byte[] outputType(long runner, int entry, int output);

    /** Its extents; -1 for a symbolic one. */
    static native long[] outputShape(long runner, int entry, int output);

    /** Return the distance of its address from the multiple below, in bytes. */
    static native long misalignment(ByteBuffer array, int alignment);

    /**
     * Have the model read a direct buffer where it lies, or, if that cannot be, a copy; a status.
     * The shape is null for an input of fixed extents.
     */
    native int setInput(
            long runner, int entry, int input, ByteBuffer array, long size, long[] shape);

    /** Return true if a model reads a tensor where it lies, or copies it by itself. */
    static native boolean reads(long runner, long tensor);

    /** Have the model read a tensor, which it keeps; a status. */
    static native int setTensor(long runner, int entry, int input, long tensor);

    /** Return true if two direct buffers share memory. */
    static native boolean overlap(ByteBuffer one, ByteBuffer other);

    /** Run the model to its end; a status. */
    native int run(long runner, int entry);

    /** Ask for a run; return its ticket, or 0 when that fails. */
    static native long startRun(long runner, int entry);

    /** Wait until the run is over; its status. */
    static native int awaitRun(long ticket);

    /** End the run before its next kernel. */
    static native void cancelRun(long ticket);

    /** Release the ticket. */
    static native void freeRun(long ticket);

    /** Extents of an output of the last run; null when that fails. */
    native long[] resultShape(long runner, int entry, int output);

    /** An output of the last run as a tensor, which later runs leave alone; 0 when that fails. */
    native long takeOutput(long runner, int entry, int output);

    /**
     * A direct buffer on the tensor's memory; null when no buffer can be: it is a device's, or
     * empty.
     */
    static native ByteBuffer tensorMemory(long tensor);

    /** Copy it to a direct buffer; a status. */
    static native int copyTensor(long tensor, ByteBuffer array, long size);

    /** Release it. */
    static native void freeTensor(long tensor);
}
