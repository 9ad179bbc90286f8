"""A stand-in for an installed application's assets, over one real file, and for what runs its tests: it runs, where
standin_android only compiles.

It is not Android: no APK, no resources, no package manager. It shows that what generated code does with
descriptors, offsets and lengths loads a model out of the midst of a larger file.
"""

import subprocess
from collections.abc import Mapping
from pathlib import Path

from support.codegen.kotlin import JAVAC

CLASSES = {
    "android.content.res.AssetManager": """
        public final class AssetManager implements AutoCloseable {
            public String[] list(String path) throws java.io.IOException {
                java.io.File index = new java.io.File(System.getProperty("assets") + ".index");
                return java.nio.file.Files.readAllLines(index.toPath()).stream()
                        .map(line -> line.split(" ")[0])
                        .filter(name -> name.startsWith(path + "/"))
                        .map(name -> name.substring(path.length() + 1))
                        .toArray(String[]::new);
            }
            public java.io.InputStream open(String name) throws java.io.IOException {
                try (AssetFileDescriptor part = part(name);
                        java.io.RandomAccessFile archive =
                                new java.io.RandomAccessFile(System.getProperty("assets"), "r")) {
                    byte[] bytes = new byte[(int) part.getLength()];
                    archive.seek(part.getStartOffset());
                    archive.readFully(bytes);
                    return new java.io.ByteArrayInputStream(bytes);
                }
            }
            public AssetFileDescriptor openFd(String name) throws java.io.IOException {
                if (Boolean.getBoolean("assets.compressed")) {
                    throw new java.io.FileNotFoundException(name + ": it is probably compressed");
                }
                return part(name);
            }
            private static AssetFileDescriptor part(String name) throws java.io.IOException {
                java.io.File archive = new java.io.File(System.getProperty("assets"));
                java.io.File index = new java.io.File(archive.getPath() + ".index");
                for (String line : java.nio.file.Files.readAllLines(index.toPath())) {
                    String[] words = line.split(" ");
                    if (words[0].equals(name)) {
                        return new AssetFileDescriptor(
                                android.os.ParcelFileDescriptor.open(archive, 0x10000000),
                                Long.parseLong(words[1]), Long.parseLong(words[2]));
                    }
                }
                throw new java.io.FileNotFoundException(name);
            }
            public void close() {}
        }""",
    "android.content.res.AssetFileDescriptor": """
        public class AssetFileDescriptor implements java.io.Closeable {
            public static final long UNKNOWN_LENGTH = -1;
            private final android.os.ParcelFileDescriptor file;
            private final long offset;
            private final long length;
            public AssetFileDescriptor(android.os.ParcelFileDescriptor file, long offset, long length) {
                this.file = file;
                this.offset = offset;
                this.length = length;
            }
            public android.os.ParcelFileDescriptor getParcelFileDescriptor() { return file; }
            public long getStartOffset() { return offset; }
            public long getLength() { return length; }
            public void close() throws java.io.IOException { file.close(); }
        }""",
    "android.os.SystemClock": """
        public final class SystemClock {
            public static long elapsedRealtimeNanos() { return System.nanoTime(); }
        }""",
    "android.app.Instrumentation": """
        public class Instrumentation {
            public android.content.Context getContext() {
                return new android.content.ContextWrapper() {
                    @Override public android.content.res.AssetManager getAssets() {
                        return new android.content.res.AssetManager();
                    }
                    @Override public java.io.File getCodeCacheDir() {
                        return new java.io.File(System.getProperty("java.io.tmpdir"));
                    }
                };
            }
            public android.content.Context getTargetContext() { return getContext(); }
        }""",
    "androidx.test.platform.app.InstrumentationRegistry": """
        public final class InstrumentationRegistry {
            private InstrumentationRegistry() {}
            public static android.app.Instrumentation getInstrumentation() {
                return new android.app.Instrumentation();
            }
        }""",
    "org.junit.Assert": """
        public class Assert {
            public interface Throwing { void run() throws Throwable; }
            public static void assertArrayEquals(long[] expected, long[] actual) {
                assertTrue("arrays differ", java.util.Arrays.equals(expected, actual));
            }
            public static void assertEquals(Object expected, Object actual) {
                assertTrue(expected + " is not " + actual, java.util.Objects.equals(expected, actual));
            }
            public static <T extends Throwable> T assertThrows(Class<T> type, Throwing code) {
                try {
                    code.run();
                } catch (Throwable thrown) {
                    return type.cast(thrown);
                }
                throw new AssertionError(type + " is not thrown");
            }
            public static void assertTrue(String message, boolean condition) {
                if (!condition) throw new AssertionError(message);
            }
        }""",
    "android.os.ParcelFileDescriptor": """
        public class ParcelFileDescriptor implements java.io.Closeable {
            public static final int MODE_READ_ONLY = 0x10000000;
            private final java.io.FileInputStream stream;
            private ParcelFileDescriptor(java.io.FileInputStream stream) { this.stream = stream; }
            public static ParcelFileDescriptor open(java.io.File file, int mode)
                    throws java.io.FileNotFoundException {
                if (mode != MODE_READ_ONLY) throw new IllegalArgumentException("mode " + mode);
                return new ParcelFileDescriptor(new java.io.FileInputStream(file));
            }
            public int getFd() {
                try {
                    java.lang.reflect.Field number = java.io.FileDescriptor.class.getDeclaredField("fd");
                    number.setAccessible(true);
                    return number.getInt(stream.getFD());
                } catch (java.io.IOException | ReflectiveOperationException why) {
                    throw new IllegalStateException(why);
                }
            }
            public void close() throws java.io.IOException { stream.close(); }
        }""",
}
JVM_OPTIONS = ("--add-opens=java.base/java.io=ALL-UNNAMED",)
"""For the number of a descriptor, which Java keeps to itself and Android gives."""


def compile_classes(directory: Path, android: Path) -> Path:
    """Compile these classes, to be put before *android*, those of standin_android, on the class path."""
    for name, text in CLASSES.items():
        package, _, cls = name.rpartition(".")
        path = directory / "sources" / package.replace(".", "/") / f"{cls}.java"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"// STAND-IN, not Android.\npackage {package};\n{text}\n")
    sources = [str(path) for path in directory.rglob("*.java")]
    classes = directory / "classes"
    subprocess.run([*JAVAC, "-cp", str(android), "-d", str(classes), *sources], check=True)
    return classes


def write_assets(archive: Path, assets: Mapping[str, Path]) -> Path:
    """Write one file with all *assets*, and its index beside it; the property ``assets`` names it."""
    index = ""
    with archive.open("wb") as out:
        out.write(b"not an asset")
        for name, source in assets.items():
            content = source.read_bytes()
            index += f"{name} {out.tell()} {len(content)}\n"
            out.write(content + b"between two assets")
    Path(f"{archive}.index").write_text(index)
    return archive
