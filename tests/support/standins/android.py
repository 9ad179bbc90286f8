"""A stand-in for android.jar: signatures of the few classes that generated code uses, as Java sources.

It is not Android. It shows that generated Java and Kotlin compile, so that names, types, arguments and
checked exceptions are right *if* the signatures here are Android's; they were written from its reference.
Nothing of it runs: every method throws.
"""

from __future__ import annotations

import os
import subprocess
import zipfile
from pathlib import Path

_UNIT = "// STAND-IN, not Android: signatures only.\npackage {package};\n\n{text}\n"

CLASSES = {
    "android.app.Activity": """
        public class Activity extends android.view.ContextThemeWrapper {
            public static final int RESULT_OK = -1;
            protected void onCreate(android.os.Bundle savedInstanceState) { throw new Error(); }
            protected void onDestroy() { throw new Error(); }
            protected void onActivityResult(int requestCode, int resultCode, android.content.Intent data) {
                throw new Error();
            }
            public void setContentView(int layout) { throw new Error(); }
            public void setContentView(android.view.View view) { throw new Error(); }
            public <T extends android.view.View> T findViewById(int id) { throw new Error(); }
            public boolean isDestroyed() { throw new Error(); }
            public final void runOnUiThread(Runnable action) { throw new Error(); }
            public void startActivityForResult(android.content.Intent intent, int requestCode) { throw new Error(); }
        }""",
    "android.content.ContentResolver": """
        public abstract class ContentResolver {
            public final java.io.InputStream openInputStream(android.net.Uri uri)
                    throws java.io.FileNotFoundException { throw new Error(); }
        }""",
    "android.content.Context": """
        public abstract class Context {
            public abstract Context getApplicationContext();
            public abstract android.content.res.AssetManager getAssets();
            public abstract java.io.File getCacheDir();
            public abstract java.io.File getCodeCacheDir();
            public abstract ContentResolver getContentResolver();
            public abstract java.io.File getFilesDir();
            public abstract String getPackageName();
            public abstract android.content.res.Resources getResources();
            public final String getString(int id) { throw new Error(); }
            public final String getString(int id, Object... values) { throw new Error(); }
        }""",
    "android.content.ContextWrapper": """
        public class ContextWrapper extends Context {
            public Context getApplicationContext() { throw new Error(); }
            public android.content.res.AssetManager getAssets() { throw new Error(); }
            public java.io.File getCacheDir() { throw new Error(); }
            public java.io.File getCodeCacheDir() { throw new Error(); }
            public ContentResolver getContentResolver() { throw new Error(); }
            public java.io.File getFilesDir() { throw new Error(); }
            public String getPackageName() { throw new Error(); }
            public android.content.res.Resources getResources() { throw new Error(); }
        }""",
    "android.content.Intent": """
        public class Intent {
            public static final String ACTION_OPEN_DOCUMENT = "android.intent.action.OPEN_DOCUMENT";
            public static final String CATEGORY_OPENABLE = "android.intent.category.OPENABLE";
            public Intent(String action) { throw new Error(); }
            public Intent addCategory(String category) { throw new Error(); }
            public android.net.Uri getData() { throw new Error(); }
            public Intent setType(String type) { throw new Error(); }
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
            public View(android.content.Context context) {}
            public boolean getFitsSystemWindows() { throw new Error(); }
            public boolean isEnabled() { throw new Error(); }
            public void setEnabled(boolean enabled) { throw new Error(); }
            public void setFitsSystemWindows(boolean fits) { throw new Error(); }
            public void setOnClickListener(OnClickListener listener) { throw new Error(); }
        }""",
    "android.widget.Button": """
        public class Button extends TextView {
            public Button(android.content.Context context) { super(context); }
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
            public final void setText(int id) { throw new Error(); }
        }""",
    "androidx.annotation.NonNull": "public @interface NonNull {}",
    "androidx.annotation.Nullable": "public @interface Nullable {}",
    "androidx.annotation.WorkerThread": "public @interface WorkerThread {}",
    "androidx.test.platform.app.InstrumentationRegistry": """
        public final class InstrumentationRegistry {
            private InstrumentationRegistry() {}
            public static android.app.Instrumentation getInstrumentation() { throw new Error(); }
        }""",
    "android.app.Instrumentation": """
        public class Instrumentation {
            public android.content.Context getTargetContext() { throw new Error(); }
        }""",
    "org.junit.After": "public @interface After {}",
    "org.junit.Assert": """
        public class Assert {
            public interface Throwing { void run() throws Throwable; }
            public static void assertArrayEquals(long[] expected, long[] actual) { throw new Error(); }
            public static void assertEquals(Object expected, Object actual) { throw new Error(); }
            public static <T extends Throwable> T assertThrows(Class<T> type, Throwing code) { throw new Error(); }
        }""",
    "org.junit.Before": "public @interface Before {}",
    "org.junit.Test": "public @interface Test {}",
}
"""Source of each class by its full name; nested classes are in their outer one's."""


def write_sources(directory: Path) -> list[Path]:
    """The Java sources below *directory*."""
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
    """The stand-in's classes, compiled into *directory*, to be given as a class path.

    Args:
        real: take those that the android.jar of :data:`REAL` has from it, if there is one.
    """
    sources = [str(path) for path in write_sources(directory / "sources")]
    classes = directory / "classes"
    classes.mkdir(parents=True, exist_ok=True)
    subprocess.run(
        ["javac", "--release", "11", "-nowarn", "-d", str(classes), *sources],
        check=True,
        capture_output=True,
        text=True,
    )
    if real and (jar := os.environ.get(REAL)):
        with zipfile.ZipFile(jar) as archive:
            archive.extractall(classes, [name for name in archive.namelist() if name.endswith(".class")])
    return classes
