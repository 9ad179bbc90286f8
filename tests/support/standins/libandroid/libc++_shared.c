/* STAND-IN, not the NDK's libc++_shared: what is built here has libstdc++. */
int adt_standin_cxx_shared;
