package org.adt.runtime;

import androidx.annotation.NonNull;
import java.nio.ByteBuffer;

/** An array of bool. */
public final class BooleanTensor extends Tensor {
    /** Make an input or output of a generated class; a negative extent is any. */
    public BooleanTensor(@NonNull String name, @NonNull String type, @NonNull long... shape) {
        super(name, type, 1, shape);
    }

    /**
     * Return the array where it lies, one byte each, 0 or 1: what is put into an input reaches the
     * model with no copy. That of an output is read-only, and is not to be touched after the
     * outputs are closed.
     *
     * @throws IllegalStateException the model leaves some extents open, and nothing has set them
     *     yet; or it is an output, which is closed
     */
    @NonNull public ByteBuffer buffer() {
        return bytes();
    }

    /**
     * Copy values into the array.
     *
     * @param extents of an array whose model leaves some open
     * @throws IllegalArgumentException there are not as many values as the array has elements
     * @throws UnsupportedOperationException it is an output
     */
    public void set(@NonNull boolean[] values, @NonNull long... extents) {
        prepare(values.length, extents);
        writable();
        ByteBuffer buffer = buffer();
        for (boolean value : values) {
            buffer.put((byte) (value ? 1 : 0));
        }
    }

    /**
     * Return a copy of the array.
     *
     * @throws IllegalStateException the model leaves some extents open, and nothing has set them
     *     yet; or it is an output, which is closed
     */
    @NonNull public boolean[] toArray() {
        boolean[] values = new boolean[elements()];
        hold(
                () -> {
                    ByteBuffer buffer = buffer();
                    for (int i = 0; i < values.length; i++) {
                        values[i] = buffer.get() != 0;
                    }
                });
        return values;
    }
}
