// STAND-IN, not Android: as much of it as the benchmark needs, on a JVM.
package android.os;

public class Build {
    public static final String HARDWARE = "stand-in";
    public static final String MODEL = "a JVM";
    public static final String SOC_MANUFACTURER = "STAND-IN";
    public static final String SOC_MODEL = "SI-1";
    public static final String[] SUPPORTED_32_BIT_ABIS = {};
    public static final String[] SUPPORTED_64_BIT_ABIS = {
        System.getProperty("os.arch").equals("aarch64") ? "arm64-v8a" : "x86_64"
    };

    public static class VERSION {
        public static final String RELEASE = "16";
        public static final int SDK_INT = Integer.parseInt("36");
    }
}
