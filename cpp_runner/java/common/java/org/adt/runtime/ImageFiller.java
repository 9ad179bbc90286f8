package org.adt.runtime;

import androidx.annotation.NonNull;
import java.nio.ByteBuffer;

/**
 * Fills an input from pictures, natively and straight into its memory (adt/image.h). It keeps the
 * memory that it works in, so that only the first frame of a size allocates. It is public for the
 * generated classes.
 */
public final class ImageFiller {
    /** Order of the input's axes. */
    public enum Layout {
        NCHW,
        NHWC
    }

    /** Order of the input's channels. */
    public enum Order {
        RGB,
        BGR,
        GRAY
    }

    /** Type of the input's elements. */
    public enum Type {
        FLOAT32,
        FLOAT16,
        UINT8
    }

    static {
        System.loadLibrary("adt_jni");
    }

    /** Layout, order, height, width, type. */
    final int[] format;
    /** Scale, then each channel's mean, then each one's standard deviation. */
    final float[] normalisation;
    /** Fit and rotation. */
    final int[] placement = new int[2];
    /** Width and height of pixels. */
    private final int[] size = new int[2];
    ByteBuffer scratch = ByteBuffer.allocateDirect(0);

    /** @param normalisation scale, three means, three standard deviations */
    public ImageFiller(
            @NonNull Layout layout,
            @NonNull Order order,
            int height,
            int width,
            @NonNull Type type,
            @NonNull float... normalisation) {
        this.format = new int[] {layout.ordinal(), order.ordinal(), height, width, type.ordinal()};
        this.normalisation = normalisation;
    }

    /** @param pixels row by row, as 0xAARRGGBB */
    public void fill(
            @NonNull Tensor tensor,
            @NonNull int[] pixels,
            int width,
            int height,
            int rotation,
            @NonNull PictureFit fit) {
        if ((long) width * height != pixels.length) {
            throw new IllegalArgumentException(
                    "a picture of " + width + " x " + height + " pixels, and " + pixels.length
                            + " were given");
        }
        ByteBuffer array = place(tensor, rotation, fit);
        size[0] = width;
        size[1] = height;
        while (grow(fillPixels(format, normalisation, placement, scratch, array, pixels, size))) {}
    }

    /** Fill the input from a camera's frame. */
    public void fill(
            @NonNull Tensor tensor,
            @NonNull YuvFrame frame,
            int rotation,
            @NonNull PictureFit fit) {
        ByteBuffer y = frame.planes[0];
        ByteBuffer u = frame.planes[1];
        ByteBuffer v = frame.planes[2];
        if (y == null || u == null || v == null) {
            throw new IllegalArgumentException("the frame lacks a plane: set it by plane()");
        }
        ByteBuffer array = place(tensor, rotation, fit);
        int[] numbers = frame.numbers;
        while (grow(fillYuv(format, normalisation, placement, scratch, array, numbers, y, u, v))) {}
    }

    ByteBuffer place(Tensor tensor, int rotation, PictureFit fit) {
        ByteBuffer array = tensor.writable();
        placement[0] = fit.ordinal();
        placement[1] = rotation;
        return array;
    }

    /** Allocate the floats of scratch that are missing; false if there are none. */
    boolean grow(int floats) {
        if (floats > 0) {
            scratch = ByteBuffer.allocateDirect(Math.multiplyExact(floats, Float.BYTES));
        }
        return floats > 0;
    }

    /**
     * Fill an input from pixels, 0xAARRGGBB; how many floats of scratch are missing, 0 when it is
     * filled.
     */
    static native int fillPixels(
            int[] format, float[] normalisation, int[] placement, ByteBuffer scratch,
            ByteBuffer array, int[] pixels, int[] size);

    /** Fills the input from a camera's frame. */
    static native int fillYuv(
            int[] format, float[] normalisation, int[] placement, ByteBuffer scratch,
            ByteBuffer array, int[] frame, ByteBuffer y, ByteBuffer u, ByteBuffer v);
}
