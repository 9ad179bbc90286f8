package org.adt.runtime;

import androidx.annotation.NonNull;
import java.nio.FloatBuffer;

/** An array of float32. */
public final class FloatTensor extends Tensor {
    /** Make an input or output of a generated class; a negative extent is any. */
    public FloatTensor(@NonNull String name, @NonNull String type, @NonNull long... shape) {
        super(name, type, 4, shape);
    }

    /**
     * Return the array where it lies: what is put into an input reaches the model with no copy.
     * That of an output is read-only, and is not to be touched after the outputs are closed.
     *
     * @throws IllegalStateException the model leaves some extents open, and nothing has set them
     *     yet; or it is an output, which is closed
     */
    @NonNull public FloatBuffer buffer() {
        return bytes().asFloatBuffer();
    }

    /**
     * Copy values into the array.
     *
     * @param extents of an array whose model leaves some open
     * @throws IllegalArgumentException there are not as many values as the array has elements
     * @throws UnsupportedOperationException it is an output
     */
    public void set(@NonNull float[] values, @NonNull long... extents) {
        prepare(values.length, extents);
        writable();
        buffer().put(values);
    }

    /**
     * Return a copy of the array.
     *
     * @throws IllegalStateException the model leaves some extents open, and nothing has set them
     *     yet; or it is an output, which is closed
     */
    @NonNull public float[] toArray() {
        float[] values = new float[elements()];
        hold(() -> buffer().get(values));
        return values;
    }
}
