package org.adt.runtime;

import androidx.annotation.NonNull;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;

/** Facts of a loaded model and of the device that it runs on. */
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

    /** Return the name of the package that the model was compiled to. */
    @NonNull public String packageName() {
        return packageName;
    }

    /** Return "cpu" or "opencl". */
    @NonNull public String device() {
        return device;
    }

    /** Return the device's name of itself. */
    @NonNull public String deviceName() {
        return deviceName;
    }

    /** Return the version of its driver; empty for a CPU. */
    @NonNull public String deviceDriver() {
        return deviceDriver;
    }

    /**
     * Return the reason why each device that was to be tried before is not used; empty: none was.
     */
    @NonNull public List<String> absentDevices() {
        return absentDevices;
    }

    /**
     * Return the state of the compiled OpenCL kernels: "off", "hit" (taken from the directory),
     * "written", "rebuilt" or "unsupported". "written" is known after the first run.
     */
    @NonNull public String programCache() {
        return programCache;
    }

    /** Return a warning about them; empty: there is none. */
    @NonNull public String programCacheWarning() {
        return programCacheWarning;
    }

    /** Return the version of libadt_runner, and of the TVM in it. */
    @NonNull public String runnerVersion() {
        return runnerVersion;
    }

    @Override
    @NonNull public String toString() {
        return packageName + " on " + device + " (" + deviceName + "), runner " + runnerVersion;
    }
}
