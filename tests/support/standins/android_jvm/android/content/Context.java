// STAND-IN, not Android: as much of it as the benchmark needs, on a JVM.
package android.content;

import android.content.res.AssetManager;
import android.os.BatteryManager;
import java.io.File;

/** An application whose assets are files of a directory. */
public class Context {
    private final File root;

    public Context(File root) {
        this.root = root;
    }

    public AssetManager getAssets() {
        return new AssetManager(new File(root, "assets"));
    }

    public File getCodeCacheDir() {
        return new File(root, "code_cache");
    }

    public String getPackageName() {
        return "com.example.vision.app";
    }

    public <T> T getSystemService(Class<T> service) {
        return service.cast(new BatteryManager());
    }

    public Intent registerReceiver(BroadcastReceiver receiver, IntentFilter filter) {
        return new Intent("").putExtra("temperature", 315).putExtra("voltage", 4012);
    }
}
