// STAND-IN for bionic's header: a property is an environment variable of its name.
#pragma once

#include <stdio.h>
#include <stdlib.h>

#define PROP_VALUE_MAX 92

static inline int __system_property_get(const char* name, char* value) {
  const char* found = getenv(name);
  return snprintf(value, PROP_VALUE_MAX, "%s", found == NULL ? "" : found);
}
