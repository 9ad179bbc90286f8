"""A stand-in for android.jar: signatures of the few classes that generated code uses, as Java sources.

It is not Android. It shows that generated Java and Kotlin compile, so that names, types, arguments and
checked exceptions are right *if* the signatures here are Android's; they were written from its reference.
Nothing of it runs: every method throws.
"""

import os
import subprocess
import zipfile
from pathlib import Path

from support.codegen.kotlin import JAVAC

_UNIT = "// STAND-IN, not Android: signatures only.\npackage {package};\n\n{text}\n"

CLASSES = {
    "android.app.Activity": """
        public class Activity extends android.view.ContextThemeWrapper {
            protected void onCreate(android.os.Bundle savedInstanceState) { throw new Error(); }
            public void setContentView(int layout) { throw new Error(); }
            public <T extends android.view.View> T findViewById(int id) { throw new Error(); }
        }""",
    "android.Manifest": """
        public final class Manifest {
            public static final class permission {
                public static final String CAMERA = "android.permission.CAMERA";
            }
        }""",
    "android.app.Application": """
        public class Application extends android.content.ContextWrapper {}""",
    "android.content.ContentResolver": """
        public abstract class ContentResolver {
            public final java.io.InputStream openInputStream(android.net.Uri uri)
                    throws java.io.FileNotFoundException { throw new Error(); }
        }""",
    "android.content.Context": """
        public abstract class Context {
            public abstract android.content.res.AssetManager getAssets();
            public abstract java.io.File getCodeCacheDir();
            public abstract ContentResolver getContentResolver();
            public abstract android.content.pm.PackageManager getPackageManager();
            public abstract String getPackageName();
            public abstract android.content.res.Resources getResources();
            public final String getString(int id) { throw new Error(); }
            public final String getString(int id, Object... values) { throw new Error(); }
        }""",
    "android.content.pm.PackageManager": """
        public abstract class PackageManager {
            public static final String FEATURE_CAMERA = "android.hardware.camera";
            public abstract boolean hasSystemFeature(String feature);
        }""",
    "android.content.ContextWrapper": """
        public class ContextWrapper extends Context {
            public android.content.res.AssetManager getAssets() { throw new Error(); }
            public java.io.File getCodeCacheDir() { throw new Error(); }
            public ContentResolver getContentResolver() { throw new Error(); }
            public android.content.pm.PackageManager getPackageManager() { throw new Error(); }
            public String getPackageName() { throw new Error(); }
            public android.content.res.Resources getResources() { throw new Error(); }
        }""",
    "android.content.res.AssetFileDescriptor": """
        public class AssetFileDescriptor implements java.io.Closeable {
            public static final long UNKNOWN_LENGTH = -1;
            public AssetFileDescriptor(android.os.ParcelFileDescriptor fd, long offset, long length) {}
            public android.os.ParcelFileDescriptor getParcelFileDescriptor() { throw new Error(); }
            public long getStartOffset() { throw new Error(); }
            public long getLength() { throw new Error(); }
            public void close() throws java.io.IOException { throw new Error(); }
        }""",
    "android.content.res.AssetManager": """
        public final class AssetManager implements AutoCloseable {
            public String[] list(String path) throws java.io.IOException { throw new Error(); }
            public java.io.InputStream open(String name) throws java.io.IOException { throw new Error(); }
            public AssetFileDescriptor openFd(String name) throws java.io.IOException { throw new Error(); }
            public void close() { throw new Error(); }
        }""",
    "android.content.res.Resources": """
        public class Resources {
            public java.io.InputStream openRawResource(int id) { throw new Error(); }
        }""",
    "android.graphics.Bitmap": """
        public final class Bitmap {
            public enum Config { ALPHA_8, RGB_565, ARGB_4444, ARGB_8888, RGBA_F16, HARDWARE, RGBA_1010102 }
            public Bitmap copy(Config config, boolean mutable) { throw new Error(); }
            public Config getConfig() { throw new Error(); }
            public int getWidth() { throw new Error(); }
            public int getHeight() { throw new Error(); }
            public void recycle() { throw new Error(); }
        }""",
    "android.graphics.BitmapFactory": """
        public class BitmapFactory {
            public static class Options {
                public boolean inJustDecodeBounds;
                public int inSampleSize;
                public int outHeight;
                public int outWidth;
            }
            public static Bitmap decodeStream(
                    java.io.InputStream stream, android.graphics.Rect padding, Options options) {
                throw new Error();
            }
        }""",
    "android.graphics.ImageDecoder": """
        public final class ImageDecoder implements AutoCloseable {
            public static final int ALLOCATOR_SOFTWARE = 1;
            public abstract static class Source { private Source() {} }
            public static class ImageInfo {
                private ImageInfo() {}
                public android.util.Size getSize() { throw new Error(); }
            }
            public interface OnHeaderDecodedListener {
                void onHeaderDecoded(ImageDecoder decoder, ImageInfo info, Source source);
            }
            private ImageDecoder() {}
            public static Source createSource(android.content.ContentResolver resolver, android.net.Uri uri) {
                throw new Error();
            }
            public static Bitmap decodeBitmap(Source source, OnHeaderDecodedListener listener)
                    throws java.io.IOException { throw new Error(); }
            public int getAllocator() { throw new Error(); }
            public void setAllocator(int allocator) { throw new Error(); }
            public void setTargetSampleSize(int size) { throw new Error(); }
            public void close() { throw new Error(); }
        }""",
    "android.graphics.Rect": """
        public final class Rect {
            public int left;
            public int top;
            public int right;
            public int bottom;
        }""",
    "android.media.Image": """
        public abstract class Image implements AutoCloseable {
            public abstract static class Plane {
                public abstract int getRowStride();
                public abstract int getPixelStride();
                public abstract java.nio.ByteBuffer getBuffer();
            }
            public abstract int getWidth();
            public abstract int getHeight();
            public abstract Plane[] getPlanes();
            public android.graphics.Rect getCropRect() { throw new Error(); }
            public abstract void close();
        }""",
    "android.net.Uri": "public abstract class Uri { private Uri() {} }",
    "android.os.Bundle": "public final class Bundle {}",
    "android.os.ParcelFileDescriptor": """
        public class ParcelFileDescriptor implements java.io.Closeable {
            public static final int MODE_READ_ONLY = 0x10000000;
            public static ParcelFileDescriptor open(java.io.File file, int mode)
                    throws java.io.FileNotFoundException { throw new Error(); }
            public int getFd() { throw new Error(); }
            public void close() throws java.io.IOException { throw new Error(); }
        }""",
    "android.os.SystemClock": """
        public final class SystemClock {
            private SystemClock() {}
            public static long elapsedRealtimeNanos() { throw new Error(); }
        }""",
    "android.util.Size": """
        public final class Size {
            public int getWidth() { throw new Error(); }
            public int getHeight() { throw new Error(); }
        }""",
    "android.view.ContextThemeWrapper": "public class ContextThemeWrapper extends android.content.ContextWrapper {}",
    "android.view.View": """
        public class View {
            public interface OnClickListener { void onClick(View view); }
            public static final int VISIBLE = 0;
            public static final int GONE = 8;
            public View(android.content.Context context) {}
            public int getVisibility() { throw new Error(); }
            public boolean isEnabled() { throw new Error(); }
            public void setEnabled(boolean enabled) { throw new Error(); }
            public void setOnClickListener(OnClickListener listener) { throw new Error(); }
            public void setVisibility(int visibility) { throw new Error(); }
        }""",
    "android.widget.Button": """
        public class Button extends TextView {
            public Button(android.content.Context context) { super(context); }
        }""",
    "android.widget.FrameLayout": """
        public class FrameLayout extends android.view.View {
            public FrameLayout(android.content.Context context) { super(context); }
        }""",
    "android.widget.ImageView": """
        public class ImageView extends android.view.View {
            public ImageView(android.content.Context context) { super(context); }
            public void setImageBitmap(android.graphics.Bitmap bitmap) { throw new Error(); }
        }""",
    "android.widget.TextView": """
        public class TextView extends android.view.View {
            public TextView(android.content.Context context) { super(context); }
            public CharSequence getText() { throw new Error(); }
            public final void setText(CharSequence text) { throw new Error(); }
        }""",
    "androidx.annotation.NonNull": "public @interface NonNull {}",
    "androidx.annotation.Nullable": "public @interface Nullable {}",
    "androidx.annotation.WorkerThread": "public @interface WorkerThread {}",
    # CameraX, by androidx's repository: camera/camera-core/api/1.7.0-rc01.txt, without what is newer than 1.6.1, and
    # camera/camera-view/api/restricted_1.6.0-beta01.txt.
    "androidx.camera.core.ImageAnalysis": """
        public final class ImageAnalysis {
            public static final int STRATEGY_KEEP_ONLY_LATEST = 0;
            public interface Analyzer {
                void analyze(@androidx.annotation.NonNull ImageProxy image);
                default android.util.Size getDefaultTargetResolution() { return null; }
                default int getTargetCoordinateSystem() { return 0; }
            }
        }""",
    "androidx.camera.core.ImageInfo": "public interface ImageInfo { int getRotationDegrees(); }",
    "androidx.camera.core.ImageProxy": """
        import androidx.annotation.NonNull;

        public interface ImageProxy extends AutoCloseable {
            interface PlaneProxy {
                int getRowStride();
                int getPixelStride();
                @NonNull java.nio.ByteBuffer getBuffer();
            }
            void close();
            @NonNull android.graphics.Rect getCropRect();
            int getHeight();
            int getWidth();
            @NonNull PlaneProxy[] getPlanes();
            @NonNull ImageInfo getImageInfo();
        }""",
    "androidx.camera.view.CameraController": """
        import androidx.annotation.NonNull;

        public abstract class CameraController {
            public static final int IMAGE_ANALYSIS = 2;
            public int getImageAnalysisBackpressureStrategy() { throw new Error(); }
            public void setEnabledUseCases(int useCases) { throw new Error(); }
            public void setImageAnalysisAnalyzer(
                    @NonNull java.util.concurrent.Executor executor,
                    @NonNull androidx.camera.core.ImageAnalysis.Analyzer analyzer) { throw new Error(); }
            public void setImageAnalysisBackpressureStrategy(int strategy) { throw new Error(); }
        }""",
    "androidx.camera.view.LifecycleCameraController": """
        import androidx.annotation.NonNull;

        public final class LifecycleCameraController extends CameraController {
            public LifecycleCameraController(@NonNull android.content.Context context) { throw new Error(); }
            public void bindToLifecycle(@NonNull androidx.lifecycle.LifecycleOwner lifecycleOwner) {
                throw new Error();
            }
            public void unbind() { throw new Error(); }
        }""",
    "androidx.camera.view.PreviewView": """
        import androidx.annotation.NonNull;
        import androidx.annotation.Nullable;

        public final class PreviewView extends android.widget.FrameLayout {
            public PreviewView(@NonNull android.content.Context context) { super(context); }
            @Nullable public CameraController getController() { throw new Error(); }
            public void setController(@Nullable CameraController controller) { throw new Error(); }
        }""",
    # In AndroidX these two are Kotlin; see androidx/lifecycle.kt.
    "androidx.lifecycle.Lifecycle": """
        public abstract class Lifecycle {
            public enum State { DESTROYED, INITIALIZED, CREATED, STARTED, RESUMED }
        }""",
    "androidx.lifecycle.LifecycleOwner": """
        public interface LifecycleOwner { @androidx.annotation.NonNull Lifecycle getLifecycle(); }""",
    "androidx.test.platform.app.InstrumentationRegistry": """
        public final class InstrumentationRegistry {
            private InstrumentationRegistry() {}
            public static android.app.Instrumentation getInstrumentation() { throw new Error(); }
        }""",
    "android.app.Instrumentation": """
        public class Instrumentation {
            public android.content.Context getContext() { throw new Error(); }
            public android.content.Context getTargetContext() { throw new Error(); }
        }""",
    "org.junit.After": "public @interface After {}",
    "org.junit.Assert": """
        public class Assert {
            public interface Throwing { void run() throws Throwable; }
            public static void assertArrayEquals(long[] expected, long[] actual) { throw new Error(); }
            public static void assertEquals(Object expected, Object actual) { throw new Error(); }
            public static void assertTrue(String message, boolean condition) { throw new Error(); }
            public static <T extends Throwable> T assertThrows(Class<T> type, Throwing code) { throw new Error(); }
        }""",
    "org.junit.Before": "public @interface Before {}",
    "org.junit.Test": "public @interface Test {}",
}
"""Source of each class by its full name; nested classes are in their outer one's."""


ANDROIDX = sorted((Path(__file__).parent / "androidx").glob("*.kt"))
"""Declarations of AndroidX that only Kotlin can call, to be compiled with their callers."""


def write_sources(directory: Path) -> list[Path]:
    written = []
    for name, text in CLASSES.items():
        package, _, cls = name.rpartition(".")
        path = directory / package.replace(".", "/") / f"{cls}.java"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(_UNIT.format(package=package, text=text.strip("\n")))
        written.append(path)
    return written


REAL = "ADT_TEST_ANDROID_JAR"
"""Names an android.jar, of an SDK's ``platforms/android-36/``, whose classes then replace the stand-in's."""


def compile_classes(directory: Path, *, real: bool = True) -> Path:
    """Compile the stand-in's classes into *directory*, to be given as a class path.

    Args:
        real: take those that the android.jar of :data:`REAL` has from it, if there is one.
    """
    sources = [str(path) for path in write_sources(directory / "sources")]
    classes = directory / "classes"
    classes.mkdir(parents=True, exist_ok=True)
    subprocess.run(
        [*JAVAC, "--release", "11", "-nowarn", "-d", str(classes), *sources],
        check=True,
        capture_output=True,
        text=True,
    )
    if real and (jar := os.environ.get(REAL)):
        with zipfile.ZipFile(jar) as archive:
            archive.extractall(classes, [name for name in archive.namelist() if name.endswith(".class")])
    return classes
