import com.example.vision.FloatGray;
import com.example.vision.FloatPlanes;
import com.example.vision.HalfColors;
import com.example.vision.Levels;
import java.io.File;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Files;
import org.adt.runtime.ByteTensor;
import org.adt.runtime.PictureFit;
import org.adt.runtime.Tensor;
import org.adt.runtime.YuvFrame;

/** Pixels and a camera's frame as inputs; needs no runner: `PictureCases DATA`. */
public final class PictureCases {
    private static File data;

    private PictureCases() {}

    public static void main(String[] arguments) throws IOException {
        data = new File(arguments[0]);
        int[] pixels = new int[12 * 10];
        ByteBuffer file = ByteBuffer.wrap(Files.readAllBytes(new File(data, "pixels.bin").toPath()));
        file.order(ByteOrder.nativeOrder()).asIntBuffer().get(pixels);

        FloatPlanes.Inputs planes = new FloatPlanes.Inputs();
        keep(planes.photo(), "FloatPlanes", () -> planes.setPhotoPixels(pixels));
        HalfColors.Inputs halves = new HalfColors.Inputs();
        keep(halves.photo(), "HalfColors", () -> halves.setPhotoPixels(pixels));
        FloatGray.Inputs gray = new FloatGray.Inputs();
        keep(gray.photo(), "FloatGray", () -> gray.setPhotoPixels(pixels));
        Levels.Inputs levels = new Levels.Inputs();
        ByteTensor photo = levels.photo();
        keep(photo, "Levels", () -> levels.setPhotoPixels(pixels), 1, 10, 12, 3);
        keep(
                photo,
                "Turned",
                () -> levels.setPhotoPixels(pixels, 12, 10, 180, PictureFit.CROP),
                1, 10, 12, 3);

        // A stand-in for a camera: NV21 in direct buffers, the chroma's not from their beginning.
        ByteBuffer luma = direct("luma.bin", 0);
        ByteBuffer red = direct("chroma.bin", 5);
        ByteBuffer blue = red.duplicate();
        blue.position(6);
        YuvFrame frame = new YuvFrame();
        for (int i = 0; i < 2; i++) {
            frame.size(320, 180).plane(0, luma, 320, 1).plane(1, blue, 320, 2).plane(2, red, 320, 2);
            frame.crop(10, 20, 210, 121).color(YuvFrame.Color.BT601);
            keep(
                    photo,
                    "Camera",
                    () -> levels.setPhotoYuv(frame, 90, PictureFit.LETTERBOX),
                    1, 10, 12, 3);
        }

        refused("pixels", () -> levels.setPhotoPixels(new int[7]));
        refused("0, 90, 180", () -> levels.setPhotoYuv(frame, 45, PictureFit.CROP));
        refused("not in a picture", () -> {
            frame.crop(-1, 0, 10, 10);
            levels.setPhotoYuv(frame, 0, PictureFit.CROP);
        });
        refused("a picture of 0 x", () -> levels.setPhotoYuv(frame.size(0, 9), 0, PictureFit.CROP));
        refused("plane of", () -> levels.setPhotoYuv(frame.size(320, 181), 0, PictureFit.CROP));
        refused("direct", () -> frame.plane(0, ByteBuffer.allocate(9), 3, 1));
        refused("lacks", () -> levels.setPhotoYuv(new YuvFrame().size(2, 2), 0, PictureFit.CROP));
        System.out.println("done");
    }

    private static ByteBuffer direct(String name, int before) throws IOException {
        byte[] bytes = Files.readAllBytes(new File(data, name).toPath());
        ByteBuffer buffer = ByteBuffer.allocateDirect(before + bytes.length);
        buffer.position(before);
        buffer.put(bytes).position(before);
        return buffer;
    }

    private static void refused(String words, Runnable call) {
        try {
            call.run();
        } catch (IllegalArgumentException expected) {
            if (expected.getMessage().contains(words)) {
                return;
            }
            throw expected;
        }
        throw new AssertionError(words + " is not refused");
    }

    private static void keep(Tensor tensor, String name, Runnable fill, long... extents)
            throws IOException {
        ByteBuffer room = ByteBuffer.allocateDirect(3 * 12 * 10 * 4);
        int size = switch (name) {
            case "FloatPlanes" -> 3 * 120 * 4;
            case "HalfColors" -> 3 * 120 * 2;
            case "FloatGray" -> 120 * 4;
            default -> 3 * 120;
        };
        room.limit(size);
        tensor.use(room, extents);
        fill.run();
        byte[] array = new byte[size];
        tensor.bytes().get(array);
        Files.write(new File(data, name + ".bin").toPath(), array);
    }
}
