import com.example.vision.ByteTensor;
import com.example.vision.FloatGray;
import com.example.vision.FloatPlanes;
import com.example.vision.HalfColors;
import com.example.vision.Levels;
import com.example.vision.Tensor;
import java.io.File;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Files;

/** Pixels as arrays, which needs no library: `PictureCases DATA`. */
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
        try {
            levels.setPhotoPixels(new int[7]);
        } catch (IllegalArgumentException expected) {
            System.out.println("done");
        }
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
