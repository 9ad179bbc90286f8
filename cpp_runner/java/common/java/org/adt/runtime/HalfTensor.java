package org.adt.runtime;

import androidx.annotation.NonNull;
import java.nio.ShortBuffer;

/** An array of float16; values are rounded to it and come from it as float. */
public final class HalfTensor extends Tensor {
    /** Make an input or output of a generated class; a negative extent is any. */
    public HalfTensor(@NonNull String name, @NonNull String type, @NonNull long... shape) {
        super(name, type, 2, shape);
    }

    /**
     * Return the array where it lies, as the bits of half-precision numbers: what is put into an
     * input reaches the model with no copy. That of an output is read-only, and is not to be
     * touched after the outputs are closed.
     *
     * @throws IllegalStateException the model leaves some extents open, and nothing has set them
     *     yet; or it is an output, which is closed
     */
    @NonNull public ShortBuffer buffer() {
        return bytes().asShortBuffer();
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
        ShortBuffer buffer = buffer();
        for (float value : values) {
            buffer.put(toHalf(value));
        }
    }

    /**
     * Return a copy of the array.
     *
     * @throws IllegalStateException the model leaves some extents open, and nothing has set them
     *     yet; or it is an output, which is closed
     */
    @NonNull public float[] toArray() {
        float[] values = new float[elements()];
        hold(
                () -> {
                    ShortBuffer buffer = buffer();
                    for (int i = 0; i < values.length; i++) {
                        values[i] = toFloat(buffer.get());
                    }
                });
        return values;
    }

    /** The number that the bits of a half-precision number stand for. */
    public static float toFloat(short half) {
        int exponent = half >> 10 & 0x1f;
        int fraction = half & 0x3ff;
        float value;
        if (exponent == 0x1f) {
            value = fraction == 0 ? Float.POSITIVE_INFINITY : Float.NaN;
        } else if (exponent == 0) {
            value = fraction * 0x1p-24f;
        } else {
            value = Float.intBitsToFloat(exponent + 112 << 23 | fraction << 13);
        }
        return half < 0 ? -value : value;
    }

    /** The bits of the half-precision number nearest to a number; the even one of two. */
    public static short toHalf(float value) {
        int bits = Float.floatToRawIntBits(value);
        int sign = bits >>> 16 & 0x8000;
        int magnitude = bits & 0x7fffffff;
        int half;
        if (magnitude > 0x7f800000) {
            half = 0x7e00; // not a number
        } else if (magnitude >= 0x477ff000) {
            half = 0x7c00; // 65520 and more: infinity
        } else if (magnitude >= 0x38800000) {
            half = magnitude - 0x38000000 + 0xfff + (magnitude >> 13 & 1) >> 13;
        } else {
            half = (int) Math.rint(Float.intBitsToFloat(magnitude) * 0x1p24); // subnormal
        }
        return (short) (sign | half);
    }
}
