// STAND-IN, not Android: as much of it as the benchmark needs, on a JVM.
package android.content.res;

import android.os.ParcelFileDescriptor;
import java.io.File;
import java.io.FileInputStream;
import java.io.IOException;
import java.io.InputStream;

public final class AssetManager {
    private final File root;

    public AssetManager(File root) {
        this.root = root;
    }

    public InputStream open(String name) throws IOException {
        return new FileInputStream(new File(root, name));
    }

    public AssetFileDescriptor openFd(String name) throws IOException {
        File file = new File(root, name);
        return new AssetFileDescriptor(
                ParcelFileDescriptor.open(file, ParcelFileDescriptor.MODE_READ_ONLY), 0, file.length());
    }
}
