// STAND-IN, not Android: as much of it as the benchmark needs, on a JVM.
package android.os;

public class Process {
    public static final boolean is64Bit() {
        return true;
    }

    public static final long getStartElapsedRealtime() {
        return SystemClock.START;
    }
}
