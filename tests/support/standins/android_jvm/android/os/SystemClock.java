// STAND-IN, not Android: as much of it as the benchmark needs, on a JVM.
package android.os;

public final class SystemClock {
    static final long START = System.nanoTime() / 1_000_000;

    private SystemClock() {}

    public static long elapsedRealtimeNanos() {
        return System.nanoTime();
    }
}
