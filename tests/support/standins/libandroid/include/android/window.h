// STAND-IN for the NDK's header: what libadt_activity uses of it.
#pragma once

enum { AWINDOW_FLAG_KEEP_SCREEN_ON = 0x00000080 };
