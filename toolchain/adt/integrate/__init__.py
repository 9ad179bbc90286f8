"""Take a package into an application: generated C++, JNI, Java, Kotlin, Android projects and APKs."""
