// STAND-IN, not Android: as much of it as the benchmark needs, on a JVM.
package android.content;

import java.util.HashMap;
import java.util.Map;

public class Intent {
    public static final String ACTION_BATTERY_CHANGED = "android.intent.action.BATTERY_CHANGED";
    private final Map<String, Object> extras = new HashMap<>();

    public Intent(String action) {}

    public int getIntExtra(String name, int fallback) {
        return (Integer) extras.getOrDefault(name, fallback);
    }

    public String getStringExtra(String name) {
        return (String) extras.get(name);
    }

    public Intent putExtra(String name, int value) {
        extras.put(name, value);
        return this;
    }

    public Intent putExtra(String name, String value) {
        extras.put(name, value);
        return this;
    }
}
