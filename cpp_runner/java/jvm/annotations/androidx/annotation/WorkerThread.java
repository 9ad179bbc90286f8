package androidx.annotation;

import java.lang.annotation.Retention;
import java.lang.annotation.RetentionPolicy;

/** A stand-in for AndroidX's annotation, to compile on a JVM; nothing reads it at run time. */
@Retention(RetentionPolicy.CLASS)
public @interface WorkerThread {}
