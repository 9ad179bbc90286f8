"""A virtual device: a Linux userland behind a daemon that speaks the real ADB transport protocol.

It is not Android and it has no speed: arm64 programs run one instruction at a time through qemu's user-mode
translation, so no time measured on it says anything about a phone. What it does give is a device that real
`adb` talks to: push, pull, shell, forward and reverse behave as they do with adbd.
"""
