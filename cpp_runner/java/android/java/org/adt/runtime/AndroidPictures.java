package org.adt.runtime;

import android.graphics.Bitmap;
import android.graphics.Rect;
import android.media.Image;
import androidx.annotation.NonNull;
import androidx.annotation.Nullable;
import java.nio.ByteBuffer;

/** Android's pictures, as inputs. */
public final class AndroidPictures {
    private AndroidPictures() {}

    /**
     * Set size and planes of a frame from an image in YUV_420_888, which stays open as long as the
     * frame is used.
     *
     * @param crop the part to take; null: the image's own
     */
    @NonNull
    public static YuvFrame set(
            @NonNull YuvFrame frame, @NonNull Image image, @Nullable Rect crop) {
        Image.Plane[] all = image.getPlanes();
        if (all.length != frame.planes.length) {
            throw new IllegalArgumentException(
                    "an image of " + all.length + " planes; ask the camera for YUV_420_888");
        }
        frame.size(image.getWidth(), image.getHeight());
        for (int i = 0; i < all.length; i++) {
            frame.plane(i, all[i].getBuffer(), all[i].getRowStride(), all[i].getPixelStride());
        }
        Rect part = crop == null ? image.getCropRect() : crop;
        return frame.crop(part.left, part.top, part.right, part.bottom);
    }

    /** Fill an input from a bitmap, where it lies if it is in ARGB_8888, else from a copy. */
    public static void fill(
            @NonNull ImageFiller filler,
            @NonNull Tensor tensor,
            @NonNull Bitmap bitmap,
            int rotation,
            @NonNull PictureFit fit) {
        boolean readable = bitmap.getConfig() == Bitmap.Config.ARGB_8888;
        Bitmap pixels = readable ? bitmap : bitmap.copy(Bitmap.Config.ARGB_8888, false);
        if (pixels == null) {
            throw new IllegalArgumentException("the bitmap cannot be copied: is it recycled?");
        }
        try {
            ByteBuffer array = filler.place(tensor, rotation, fit);
            while (filler.grow(
                    fillBitmap(
                            filler.format,
                            filler.normalisation,
                            filler.placement,
                            filler.scratch,
                            array,
                            pixels))) {}
        } finally {
            if (!readable) {
                pixels.recycle();
            }
        }
    }

    /**
     * Fill an input from a bitmap in ARGB_8888; the number of floats of scratch that are missing.
     */
    private static native int fillBitmap(
            int[] format,
            float[] normalisation,
            int[] placement,
            ByteBuffer scratch,
            ByteBuffer array,
            Bitmap bitmap);
}
