// STAND-IN, not Android: as much of it as the benchmark needs, on a JVM.
package android.content.res;

import android.os.ParcelFileDescriptor;
import java.io.Closeable;
import java.io.IOException;

public class AssetFileDescriptor implements Closeable {
    public static final long UNKNOWN_LENGTH = -1;
    private final ParcelFileDescriptor file;
    private final long offset;
    private final long length;

    public AssetFileDescriptor(ParcelFileDescriptor file, long offset, long length) {
        this.file = file;
        this.offset = offset;
        this.length = length;
    }

    public ParcelFileDescriptor getParcelFileDescriptor() {
        return file;
    }

    public long getStartOffset() {
        return offset;
    }

    public long getLength() {
        return length;
    }

    @Override
    public void close() throws IOException {
        file.close();
    }
}
