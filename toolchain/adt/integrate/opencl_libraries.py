"""The OpenCL libraries of Android devices' vendors, as an app's manifest must name them."""

from __future__ import annotations

OPENCL_LIBRARIES = (
    "libOpenCL.so",
    "libOpenCL-pixel.so",
    "libOpenCL-car.so",
    "libGLES_mali.so",
    "libPVROCL.so",
)
"""For ``<uses-native-library>``: Adreno and most others, Google's phones, cars, Mali, PowerVR. From
targetSdkVersion 31 on, an app sees a vendor's library only if its manifest names it and the vendor's list of
public libraries has it, too."""
