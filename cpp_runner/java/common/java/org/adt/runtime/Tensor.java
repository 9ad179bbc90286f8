package org.adt.runtime;

import androidx.annotation.NonNull;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.Arrays;

/**
 * An input or output of a model. An input is an array in memory of its own, which the model reads
 * where it lies, in a direct buffer of the caller's, or in an output. An output is the array that a
 * run left, and is read-only; on a GPU it is read into the program's memory when it is first asked
 * for.
 *
 * <p>It is not to be touched while a model runs with it, and is not made for several threads.
 */
public abstract class Tensor {
    private final String name;
    private final String type;
    private final int elementSize;
    /** -1: symbolic. */
    private final long[] declared;
    /** Null: not known yet. */
    private long[] shape;
    /** Direct; its capacity is the array's size. Null: not there yet, or a run's. */
    private ByteBuffer array;
    /** The run's array that this is, or uses; null: array. */
    private NativeTensor result;
    private boolean output;

    Tensor(String name, String type, int elementSize, long[] declared) {
        this.name = name;
        this.type = type;
        this.elementSize = elementSize;
        this.declared = declared;
        if (!symbolic()) {
            shape = declared;
        }
    }

    /** Return the name that the model has for it. */
    @NonNull public final String name() {
        return name;
    }

    /** Return the type of the elements, such as "float32". */
    @NonNull public final String type() {
        return type;
    }

    /**
     * Return the extents of the array.
     *
     * @throws IllegalStateException the model leaves some open, and nothing has set them yet
     */
    @NonNull public final long[] shape() {
        requireShape();
        return shape.clone();
    }

    /**
     * Return the number of elements.
     *
     * @throws IllegalStateException the model leaves some extents open, and nothing has set them
     *     yet
     */
    public final int elements() {
        requireShape();
        return elements(shape);
    }

    /**
     * Return the array where it lies: a direct buffer in native byte order, from 0 to its end. That
     * of an output is read-only, and is not to be touched after the outputs are closed.
     *
     * @throws IllegalStateException the model leaves some extents open, and nothing has set them
     *     yet; or it is an output, which is closed
     */
    @NonNull public final ByteBuffer bytes() {
        return array().duplicate().order(ByteOrder.nativeOrder());
    }

    /**
     * Set the extents of an array whose model leaves some open; what was in it is lost.
     *
     * @throws IllegalArgumentException the model does not take these extents
     * @throws UnsupportedOperationException it is an output
     */
    public final void resize(@NonNull long... extents) {
        requireInput();
        requireDeclared(extents);
        if (!Arrays.equals(extents, shape)) {
            array = null;
            result = null;
            shape = extents.clone();
        }
    }

    /**
     * Use a direct buffer of the caller's from its position to its limit, in native byte order,
     * where it lies: a model reads it with no copy. On a GPU, or where its address is no multiple
     * of the package's alignment, the runtime makes one copy of it.
     *
     * @param buffer kept until another one is used or the tensor is gone
     * @param extents of an array whose model leaves some open
     * @throws IllegalArgumentException it is not direct, or of another size
     * @throws UnsupportedOperationException it is an output
     */
    public final void use(@NonNull ByteBuffer buffer, @NonNull long... extents) {
        requireInput();
        long[] found = extents.length == 0 && !symbolic() ? declared : extents;
        requireDeclared(found);
        if (!buffer.isDirect()) {
            throw new IllegalArgumentException(name + " needs a direct buffer");
        }
        requireSize((long) elements(found) * elementSize, buffer.remaining(), "bytes");
        array = buffer.slice().order(ByteOrder.nativeOrder());
        result = null;
        shape = found.clone();
    }

    /**
     * Use the array of another tensor where it lies, such as an output of any model: with no copy,
     * unless that is on another device. A run finds an output that is closed by then
     * (IllegalStateException).
     *
     * @throws IllegalArgumentException it is of another element type, or the model does not take
     *     its extents
     * @throws UnsupportedOperationException this is an output
     */
    public final void use(@NonNull Tensor other) {
        requireInput();
        if (!type.equals(other.type)) {
            throw new IllegalArgumentException(this + " cannot be " + other + ": other elements");
        }
        other.requireShape();
        requireDeclared(other.shape);
        array = other.result == null ? other.array() : null;
        result = other.result;
        shape = other.shape.clone();
    }

    @Override
    @NonNull public final String toString() {
        return name + " " + type + Arrays.toString(shape == null ? declared : shape);
    }

    final boolean symbolic() {
        for (long extent : declared) {
            if (extent < 0) {
                return true;
            }
        }
        return false;
    }

    /** Return the extents for a run; null if the model knows them. */
    final long[] symbolicShape() {
        return symbolic() ? shape : null;
    }

    /** Return the array, which is made when it is not there yet. */
    final ByteBuffer array() {
        int size = size();
        if (result != null) {
            return result.array(size);
        }
        if (array == null) {
            array = NativeRunner.allocate(size);
        }
        return array;
    }

    /** Return the array to be filled: a new one in place of an output that was used. */
    final ByteBuffer writable() {
        requireInput();
        result = null;
        ByteBuffer found = array();
        if (found.isReadOnly()) {
            throw new IllegalArgumentException(name + " is a read-only buffer");
        }
        return found;
    }

    /** Be the output that a run left. */
    final void take(NativeTensor left, long[] extents) {
        result = left;
        output = true;
        requireDeclared(extents);
        shape = extents;
    }

    /** Be no part of the inputs that the run had. */
    final void separate(ByteBuffer[] inputs) {
        result.separate(inputs, size());
    }

    /** Let a model's input be the output that is used here; false: a buffer is to be set. */
    final boolean setWhereItLies(long runner, int entry, int input) {
        return result != null && result.set(runner, entry, input);
    }

    /** Do something with the array while nobody can release it. */
    final void hold(Runnable work) {
        if (result == null) {
            work.run();
        } else {
            result.hold(work);
        }
    }

    /** Release an output. */
    final void release() {
        if (result != null) {
            result.close();
        }
    }

    /** Take the extents that come with so many values: none where the model knows them. */
    final void prepare(int values, long[] extents) {
        if (extents.length > 0 || symbolic()) {
            resize(extents);
        }
        requireSize(elements(), values, "elements");
    }

    private void requireSize(long wanted, long found, String unit) {
        if (found != wanted) {
            throw new IllegalArgumentException(
                    this + " has " + wanted + " " + unit + ", and " + found + " were given");
        }
    }

    private void requireInput() {
        if (output) {
            throw new UnsupportedOperationException(name + " is an output, which is read-only");
        }
    }

    private int size() {
        requireShape();
        return Math.multiplyExact(elements(shape), elementSize);
    }

    private void requireShape() {
        if (shape == null) {
            throw new IllegalStateException(this + " has no extents yet: call resize, or set");
        }
    }

    private void requireDeclared(long[] extents) {
        boolean fits = extents.length == declared.length;
        for (int i = 0; fits && i < declared.length; i++) {
            fits = declared[i] < 0 ? extents[i] >= 0 : extents[i] == declared[i];
        }
        if (!fits) {
            throw new IllegalArgumentException(
                    name + " is " + type + Arrays.toString(declared) + " (-1 is any extent), not "
                            + Arrays.toString(extents));
        }
    }

    private int elements(long[] extents) {
        long count = 1;
        try {
            for (long extent : extents) {
                count = Math.multiplyExact(count, extent);
            }
            Math.toIntExact(Math.multiplyExact(count, elementSize));
        } catch (ArithmeticException why) {
            throw new IllegalArgumentException(
                    name + Arrays.toString(extents) + " is larger than a buffer can be", why);
        }
        return (int) count;
    }
}
