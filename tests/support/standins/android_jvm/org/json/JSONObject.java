// STAND-IN, not Android: as much of it as the benchmark needs, on a JVM.
package org.json;

import java.util.LinkedHashMap;
import java.util.Map;
import java.util.stream.Collectors;

/** As Android's: a name that is put twice has the last value, numbers that are whole have no fraction. */
public class JSONObject {
    public static final Object NULL = new Object();
    private final Map<String, Object> values = new LinkedHashMap<>();

    public JSONObject put(String name, boolean value) {
        return put(name, (Object) value);
    }

    public JSONObject put(String name, double value) {
        return put(name, (Object) finite(value));
    }

    public JSONObject put(String name, int value) {
        return put(name, (Object) value);
    }

    public JSONObject put(String name, long value) {
        return put(name, (Object) value);
    }

    public JSONObject put(String name, Object value) {
        if (value == null) {
            values.remove(name);
        } else {
            values.put(name, value);
        }
        return this;
    }

    @Override
    public String toString() {
        return values.entrySet().stream()
                .map(row -> text(row.getKey()) + ":" + text(row.getValue()))
                .collect(Collectors.joining(",", "{", "}"));
    }

    static double finite(double value) {
        if (Double.isNaN(value) || Double.isInfinite(value)) {
            throw new JSONException("no number: " + value);
        }
        return value;
    }

    static String text(Object value) {
        if (value == NULL) {
            return "null";
        }
        if (value instanceof String) {
            return "\"" + ((String) value).replace("\\", "\\\\").replace("\"", "\\\"") + "\"";
        }
        if (value instanceof Double && (Double) value == ((Double) value).longValue()) {
            return String.valueOf(((Double) value).longValue());
        }
        return String.valueOf(value);
    }
}
