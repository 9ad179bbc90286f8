package org.adt.runtime;

import android.content.Context;
import android.content.res.AssetFileDescriptor;
import android.os.ParcelFileDescriptor;
import androidx.annotation.NonNull;
import androidx.annotation.Nullable;
import java.io.File;
import java.io.FileNotFoundException;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.util.List;

/**
 * A model as an application carries it: mod.so as a library among its libraries, mod.json and
 * mod.params as assets: read where they lie when they are not compressed, else from copies. It is
 * public for the generated classes.
 */
public final class PackagedModel {
    private final String device;
    private final String stem;
    private final String library;
    private final boolean sharedParams;

    /**
     * @param device that it was compiled for
     * @param stem directory of its assets, below adt/
     * @param library file name of its library
     * @param sharedParams mod.params lies in that directory, not in each architecture's below it
     */
    public PackagedModel(
            @NonNull String device,
            @NonNull String stem,
            @NonNull String library,
            boolean sharedParams) {
        this.device = device;
        this.stem = stem;
        this.library = library;
        this.sharedParams = sharedParams;
    }

    /**
     * Load a model for the first device that is there.
     *
     * @param packages of the model, one for each device
     * @param params mod.params of the one package that is meant then; null: those among the assets
     */
    @NonNull public static NativeRunner open(
            @NonNull Context context,
            @NonNull List<PackagedModel> packages,
            @Nullable File params,
            @NonNull RunnerOptions options,
            @NonNull String signature) {
        if (options.devices().isEmpty()) {
            return NativeRunner.first(
                    params == null ? packages : packages.subList(0, 1),
                    model -> model.open(context, params, options, signature));
        }
        return NativeRunner.first(
                options.devices(),
                device -> {
                    RunnerOptions only = options.toBuilder().devices(device).build();
                    return on(device, packages).open(context, params, only, signature);
                });
    }

    /** The package for a device such as "opencl:1"; the first, which will be refused, for none. */
    private static PackagedModel on(String device, List<PackagedModel> packages) {
        for (PackagedModel model : packages) {
            if (model.device.equals(device.split(":")[0])) {
                return model;
            }
        }
        return packages.get(0);
    }

    private NativeRunner open(
            Context context, File params, RunnerOptions options, String signature) {
        String directory = "adt/" + stem + "/";
        String assets = directory + NativeRunner.architecture() + "/";
        String shipped = (sharedParams ? directory : assets) + "mod.params";
        RunnerOptions placed = withPlaces(options, context);
        keepPrograms(context, assets + "programs", placed.programCache());
        try (AssetFileDescriptor manifest = asset(context, assets + "mod.json");
                AssetFileDescriptor weights =
                        params == null ? asset(context, shipped) : whole(params)) {
            return NativeRunner.open(
                    part(manifest), part(weights), library, placed, signature);
        } catch (IOException why) {
            throw (AdtException)
                    new AdtException(
                                    AdtException.Kind.PACKAGE,
                                    "a file of the model cannot be read: " + why,
                                    "The application needs " + assets + "mod.json, and " + shipped
                                            + " if it is not given as a file, among its assets.")
                            .initCause(why);
        }
    }

    /**
     * Put compiled OpenCL kernels that the application carries where the runner looks for kernels.
     * It takes those of the device's driver, by the file's name; for another driver it builds them.
     */
    private static void keepPrograms(Context context, String assets, File cache) {
        try {
            String[] names = context.getAssets().list(assets);
            if (names == null || cache.getPath().equals("off")) {
                return;
            }
            for (String name : names) {
                File file = new File(cache, name);
                if (!file.exists() && (cache.isDirectory() || cache.mkdirs())) {
                    copy(context, assets + "/" + name, file);
                }
            }
        } catch (IOException unreadable) {
            // They only save time.
        }
    }

    private static void copy(Context context, String asset, File file) throws IOException {
        File part = File.createTempFile("adt", null, file.getParentFile());
        try (InputStream in = context.getAssets().open(asset);
                OutputStream out = new FileOutputStream(part)) {
            byte[] buffer = new byte[1 << 16];
            for (int size = in.read(buffer); size >= 0; size = in.read(buffer)) {
                out.write(buffer, 0, size);
            }
        } catch (IOException why) {
            part.delete();
            throw why;
        }
        if (!part.renameTo(file)) {
            part.delete();
        }
    }

    /**
     * An asset in the APK; if it is compressed there, a copy, which goes when the application is
     * updated.
     */
    private static AssetFileDescriptor asset(Context context, String name) throws IOException {
        try {
            return context.getAssets().openFd(name);
        } catch (FileNotFoundException compressed) {
            File copy = new File(context.getCodeCacheDir(), "adt-assets/" + name);
            File directory = copy.getParentFile();
            if (!copy.isFile() && (directory.isDirectory() || directory.mkdirs())) {
                copy(context, name, copy);
            }
            return whole(copy);
        }
    }

    private static AssetFileDescriptor whole(File file) throws IOException {
        ParcelFileDescriptor open =
                ParcelFileDescriptor.open(file, ParcelFileDescriptor.MODE_READ_ONLY);
        return new AssetFileDescriptor(open, 0, AssetFileDescriptor.UNKNOWN_LENGTH);
    }

    private static NativeRunner.FilePart part(AssetFileDescriptor file) {
        return new NativeRunner.FilePart(
                file.getParcelFileDescriptor().getFd(), file.getStartOffset(), file.getLength());
    }

    /** Directories of the application's own where the options name none. */
    private static RunnerOptions withPlaces(RunnerOptions options, Context context) {
        RunnerOptions.Builder builder = options.toBuilder();
        if (options.programCache() == null) {
            builder.programCache(new File(context.getCodeCacheDir(), "adt"));
        }
        if (options.scratch() == null) {
            builder.scratch(context.getCodeCacheDir());
        }
        return builder.build();
    }
}
