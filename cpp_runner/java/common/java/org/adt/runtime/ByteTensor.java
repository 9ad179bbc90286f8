package org.adt.runtime;

import androidx.annotation.NonNull;
import java.nio.ByteBuffer;

/** An array of int8, or of uint8 as the same bits. */
public final class ByteTensor extends Tensor {
    /** Make an input or output of a generated class; a negative extent is any. */
    public ByteTensor(@NonNull String name, @NonNull String type, @NonNull long... shape) {
        super(name, type, 1, shape);
    }

    /**
     * Return the array where it lies: what is put into an input reaches the model with no copy.
     * That of an output is read-only, and is not to be touched after the outputs are closed.
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
    public void set(@NonNull byte[] values, @NonNull long... extents) {
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
    @NonNull public byte[] toArray() {
        byte[] values = new byte[elements()];
        hold(() -> buffer().get(values));
        return values;
    }
}
