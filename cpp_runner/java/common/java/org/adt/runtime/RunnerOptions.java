package org.adt.runtime;

import androidx.annotation.NonNull;
import androidx.annotation.Nullable;
import java.io.File;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Locale;

/** Options of a model that is loaded, each with a default. */
public final class RunnerOptions {
    /** Nothing set. */
    @NonNull public static final RunnerOptions DEFAULTS = new Builder().build();

    /** Kinds of devices that models run on. */
    public enum Device {
        CPU,
        OPENCL,
        CUDA;

        private final String text = name().toLowerCase(Locale.ROOT);
    }

    /** Cores that threads run on; where all are alike, each means all. */
    public enum Affinity {
        /** All but the slowest. */
        BIG,
        /** The slowest. */
        LITTLE,
        ALL;

        private final String text = name().toLowerCase(Locale.ROOT);
    }

    private final List<String> devices;
    private final int threads;
    private final String affinity;
    private final boolean ownExecutor;
    private final File programCache;
    private final File scratch;
    private final BuildProgress buildProgress;

    private RunnerOptions(Builder builder) {
        devices = builder.devices;
        threads = builder.threads;
        affinity = builder.affinity;
        ownExecutor = builder.ownExecutor;
        programCache = builder.programCache;
        scratch = builder.scratch;
        buildProgress = builder.buildProgress;
    }

    /**
     * Return devices such as "opencl:1", in order; none: the one that the model was compiled for.
     */
    @NonNull public List<String> devices() {
        return devices;
    }

    /** Return the number of threads that run models; 0: one per core of the affinity. */
    public int threads() {
        return threads;
    }

    /** Return the cores that they run on; null: any when threads is 0 as well, else "big". */
    @Nullable public String affinity() {
        return affinity;
    }

    /** Return true if the model has threads of its own, beside those that other models share. */
    public boolean ownExecutor() {
        return ownExecutor;
    }

    /** Return the directory of compiled OpenCL kernels; null: the default of the load method. */
    @Nullable public File programCache() {
        return programCache;
    }

    /** Return the directory for a library that cannot be loaded from memory; null: none. */
    @Nullable public File scratch() {
        return scratch;
    }

    /** Return the listener to the build of OpenCL programs; null: none. */
    @Nullable public BuildProgress buildProgress() {
        return buildProgress;
    }

    /** Listener to the build of a model's OpenCL programs: on a phone it may take seconds. */
    public interface BuildProgress {
        /**
         * Called by the thread that loads, only when there is something to build, at last with done
         * equal to total. What it throws, load throws.
         */
        void onProgress(int done, int total);
    }

    /** These options, to be changed. */
    @NonNull public Builder toBuilder() {
        Builder builder = new Builder();
        builder.devices = devices;
        builder.threads = threads;
        builder.affinity = affinity;
        builder.ownExecutor = ownExecutor;
        builder.programCache = programCache;
        builder.scratch = scratch;
        builder.buildProgress = buildProgress;
        return builder;
    }

    /** Collects options. */
    public static final class Builder {
        private List<String> devices = Collections.emptyList();
        private int threads;
        private String affinity;
        private boolean ownExecutor;
        private File programCache;
        private File scratch;
        private BuildProgress buildProgress;

        /** The device, or several to be tried in order: the next one where one is not there. */
        @NonNull public Builder devices(@NonNull Device... inOrder) {
            String[] names = new String[inOrder.length];
            for (int i = 0; i < names.length; i++) {
                names[i] = inOrder[i].text;
            }
            return devices(names);
        }

        /** Sets the device by name: "cpu", "opencl", or "opencl:1", the second of several. */
        @NonNull public Builder devices(@NonNull String... inOrder) {
            devices = Collections.unmodifiableList(new ArrayList<>(Arrays.asList(inOrder)));
            return this;
        }

        /**
         * Set the number of threads that run models. All models share them: the one that is loaded
         * last with threads or an affinity decides.
         */
        @NonNull public Builder threads(int threads) {
            if (threads < 0) {
                throw new IllegalArgumentException("threads: " + threads + " is below 0");
            }
            this.threads = threads;
            return this;
        }

        /** Set the cores that they run on. */
        @NonNull public Builder affinity(@NonNull Affinity affinity) {
            return affinity(affinity.text);
        }

        /** Sets the cores by number: "0,4-7"; null: any if threads is 0, else the big ones. */
        @NonNull public Builder affinity(@Nullable String cores) {
            this.affinity = cores;
            return this;
        }

        /**
         * Have the model run beside others, by threads of its own, and not one after the other by
         * those that are shared: a model on the GPU and one on the CPU, say.
         */
        @NonNull public Builder ownExecutor(boolean ownExecutor) {
            this.ownExecutor = ownExecutor;
            return this;
        }

        /** Set the directory where compiled OpenCL kernels are kept from one start to the next. */
        @NonNull public Builder programCache(@Nullable File programCache) {
            this.programCache = programCache;
            return this;
        }

        /** Set a directory that libraries may be loaded from, should it not work from memory. */
        @NonNull public Builder scratch(@Nullable File scratch) {
            this.scratch = scratch;
            return this;
        }

        /** Set the listener to the build of OpenCL programs. */
        @NonNull public Builder buildProgress(@Nullable BuildProgress buildProgress) {
            this.buildProgress = buildProgress;
            return this;
        }

        /** Return the options as they are now. */
        @NonNull public RunnerOptions build() {
            return new RunnerOptions(this);
        }
    }
}
