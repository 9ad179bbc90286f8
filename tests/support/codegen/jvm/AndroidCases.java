import android.content.ContextWrapper;
import android.content.res.AssetManager;
import com.example.vision.Small;
import java.io.File;
import org.adt.runtime.AdtException;
import org.adt.runtime.RunnerOptions;

/**
 * Loads a model as an application carries it: `AndroidCases CACHE PARAMS`, or `AndroidCases CACHE` to
 * run once, on the devices of the property `devices`, and say on which and what became of compiled
 * OpenCL kernels; meanwhile on the device of `beside`, too.
 */
public final class AndroidCases {
    private AndroidCases() {}

    public static void main(String[] arguments) throws Exception {
        File cache = new File(arguments[0]);
        ContextWrapper context =
                new ContextWrapper() {
                    @Override
                    public AssetManager getAssets() {
                        return new AssetManager();
                    }

                    @Override
                    public File getCodeCacheDir() {
                        return cache;
                    }
                };
        float[] x = {1, 2, 3, 4};
        if (arguments.length == 1) {
            try (Small small = Small.load(context, options("devices"))) {
                if (System.getProperty("beside") != null) {
                    try (Small beside = Small.load(context, options("beside"))) {
                        expect(Math.abs(beside.run(x)[0] - 1) < 1e-5, beside.info());
                        System.out.println("beside " + beside.info().device());
                    }
                }
                expect(Math.abs(small.run(x)[0] - 1) < 1e-5, small.info());
                int absent = small.info().absentDevices().size();
                System.out.println("device " + small.info().device() + " after " + absent);
                System.out.println("programs: " + small.info().programCache());
            }
            return;
        }
        for (int cycle = 0; cycle < 3; cycle++) {
            try (Small small = Small.load(context)) {
                expect(Math.abs(small.run(x)[0] - 1) < 1e-5, small.info());
                try {
                    Small.load(context);
                    throw new AssertionError("one library was loaded twice");
                } catch (AdtException expected) {
                    expect(expected.problem().contains("is loaded already"), expected);
                }
            }
        }
        RunnerOptions options = RunnerOptions.DEFAULTS;
        try (Small small = Small.load(context, new File(arguments[1]), options)) {
            expect(Math.abs(small.run(x)[1] - 2) < 1e-5, small.info());
        }
        try {
            Small.load(context, new File(arguments[1] + ".other"), options);
            throw new AssertionError("a file that is not there was read");
        } catch (AdtException expected) {
            expect(expected.getCause() != null, expected);
        }
        System.setProperty("assets", System.getProperty("assets.without"));
        try {
            Small.load(context);
            throw new AssertionError("an asset that is not there was read");
        } catch (AdtException expected) {
            expect(expected.remedy().contains("adt/small/"), expected);
        }
        int descriptors = new File("/proc/self/fd").list().length;
        for (int cycle = 0; cycle < 20; cycle++) {
            try {
                Small.load(context);
            } catch (AdtException expected) {
                continue;
            }
        }
        int left = new File("/proc/self/fd").list().length;
        // The virtual machine opens some for a moment. Fewer: a model that was closed before is released by now.
        for (int wait = 0; left > descriptors && wait < 100; wait++) {
            Thread.sleep(100);
            left = new File("/proc/self/fd").list().length;
        }
        expect(left <= descriptors, left + " descriptors, and not " + descriptors);
        System.out.println("done");
    }

    private static RunnerOptions options(String property) {
        String devices = System.getProperty(property);
        return devices == null
                ? RunnerOptions.DEFAULTS
                : new RunnerOptions.Builder().devices(devices.split(",")).build();
    }

    private static void expect(boolean truth, Object what) {
        if (!truth) {
            throw new AssertionError(what);
        }
    }
}
