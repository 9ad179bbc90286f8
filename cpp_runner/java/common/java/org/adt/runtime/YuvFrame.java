package org.adt.runtime;

import androidx.annotation.NonNull;
import java.nio.ByteBuffer;

/**
 * A camera's frame, as Android's YUV_420_888 describes it: luma, then blue and red chroma, which
 * have one sample for two by two pixels, in direct buffers of the caller's with any strides. It can
 * be set anew for each frame, and is not made for several threads.
 */
public final class YuvFrame {
    /** ITU-R's matrix; luma from 0 to 255, or from 16 to 235 (video). */
    public enum Color {
        /** As Android's cameras give it. */
        BT601,
        BT709,
        BT601_VIDEO,
        BT709_VIDEO
    }

    static final int SIZE = 0;
    static final int CROP = 2;
    static final int COLOR = 6;
    static final int PLANES = 7;
    static final int PLANE_NUMBERS = 4;

    /** Width, height; left, top, width, height of the crop; color; of each plane see plane(). */
    final int[] numbers = new int[PLANES + 3 * PLANE_NUMBERS];
    final ByteBuffer[] planes = new ByteBuffer[3];

    /** Set the frame's size in pixels; all of it is taken, until crop() is called. */
    @NonNull
    public YuvFrame size(int width, int height) {
        numbers[SIZE] = width;
        numbers[SIZE + 1] = height;
        return crop(0, 0, width, height);
    }

    /**
     * Set one of the planes.
     *
     * @param index 0: luma, 1: blue chroma, 2: red chroma
     * @param data direct; its samples lie from its position to its limit
     * @param rowStride bytes from one row to the next
     * @param pixelStride bytes from one sample to the next
     * @throws IllegalArgumentException the buffer is not direct
     */
    @NonNull
    public YuvFrame plane(int index, @NonNull ByteBuffer data, int rowStride, int pixelStride) {
        if (!data.isDirect()) {
            throw new IllegalArgumentException("a plane needs a direct buffer");
        }
        planes[index] = data;
        int at = PLANES + index * PLANE_NUMBERS;
        numbers[at] = data.position();
        numbers[at + 1] = data.remaining();
        numbers[at + 2] = rowStride;
        numbers[at + 3] = pixelStride;
        return this;
    }

    /** Take a part of the frame, before it is turned; what lies outside of it is not looked at. */
    @NonNull
    public YuvFrame crop(int left, int top, int right, int bottom) {
        numbers[CROP] = left;
        numbers[CROP + 1] = top;
        numbers[CROP + 2] = right - left;
        numbers[CROP + 3] = bottom - top;
        return this;
    }

    /** Set how colours are made; BT601 if this is not called. */
    @NonNull
    public YuvFrame color(@NonNull Color color) {
        numbers[COLOR] = color.ordinal();
        return this;
    }
}
