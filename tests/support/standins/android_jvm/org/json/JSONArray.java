// STAND-IN, not Android: as much of it as the benchmark needs, on a JVM.
package org.json;

import java.util.ArrayList;
import java.util.List;
import java.util.stream.Collectors;

public class JSONArray {
    private final List<Object> values = new ArrayList<>();

    public int length() {
        return values.size();
    }

    public JSONArray put(double value) {
        values.add(JSONObject.finite(value));
        return this;
    }

    public JSONArray put(Object value) {
        values.add(value);
        return this;
    }

    @Override
    public String toString() {
        return values.stream().map(JSONObject::text).collect(Collectors.joining(",", "[", "]"));
    }
}
