// STAND-IN, not Android: as much of it as the benchmark needs, on a JVM.
package org.json;

public class JSONException extends RuntimeException {
    private static final long serialVersionUID = 1L;

    public JSONException(String problem) {
        super(problem);
    }
}
