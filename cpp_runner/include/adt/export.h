// Marks what libadt_runner exports; everything else is hidden.
#pragma once

#define ADT_API __attribute__((visibility("default")))
