package org.adt.runtime;

import androidx.annotation.NonNull;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;

/** What a loaded model is and runs on. */
public final class RunnerInfo {
    private final String packageName;
    private final String device;
    private final String deviceName;
    private final String deviceDriver;
    private final List<String> absentDevices;
    private final String programCache;
    private final String programCacheWarning;
    private final String runnerVersion;

    RunnerInfo(
            String packageName,
            String device,
            String deviceName,
            String deviceDriver,
            List<String> absentDevices,
            String programCache,
            String programCacheWarning,
            String runnerVersion) {
        this.packageName = packageName;
        this.device = device;
        this.deviceName = deviceName;
        this.deviceDriver = deviceDriver;
        this.absentDevices = Collections.unmodifiableList(new ArrayList<>(absentDevices));
        this.programCache = programCache;
        this.programCacheWarning = programCacheWarning;
        this.runnerVersion = runnerVersion;
    }

    /** Name of the package that the model was compiled to. */
    @NonNull public String packageName() {
        return packageName;
    }

    /** "cpu" or "opencl". */
    @NonNull public String device() {
        return device;
    }

    /** What the device calls itself. */
    @NonNull public String deviceName() {
        return deviceName;
    }

    /** Version of its driver; empty for a CPU. */
    @NonNull public String deviceDriver() {
        return deviceDriver;
    }

    /** Why each device that was to be tried before this one is not used; empty for none. */
    @NonNull public List<String> absentDevices() {
        return absentDevices;
    }

    /**
     * What became of the compiled OpenCL kernels: "off", "hit" (taken from the directory),
     * "written", "rebuilt" or "unsupported". "written" is known after the first run.
     */
    @NonNull public String programCache() {
        return programCache;
    }

    /** What there is to be known of them; empty for nothing. */
    @NonNull public String programCacheWarning() {
        return programCacheWarning;
    }

    /** Version of libadt_runner, and of the TVM in it. */
    @NonNull public String runnerVersion() {
        return runnerVersion;
    }

    @Override
    @NonNull public String toString() {
        return packageName + " on " + device + " (" + deviceName + "), runner " + runnerVersion;
    }
}
