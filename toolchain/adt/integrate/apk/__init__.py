"""An installable, signed APK of packages and bundles, without Gradle and without Java code."""
