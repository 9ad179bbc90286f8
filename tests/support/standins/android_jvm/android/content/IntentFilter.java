// STAND-IN, not Android: as much of it as the benchmark needs, on a JVM.
package android.content;

public class IntentFilter {
    public IntentFilter(String action) {}
}
