/* build_id.h: which build this is, for what is measured about its code and kept. */
#ifndef SNUG_BASE_BUILD_ID_H
#define SNUG_BASE_BUILD_ID_H

#ifdef __cplusplus
extern "C" {
#endif

enum { BUILD_ID_TEXT = 48 };

/* The hash the linker wrote into the running program (it changes with any of its code), in
 * hexadecimal; "unknown" when there is none. Returns out. */
const char *build_id(char out[BUILD_ID_TEXT]);

#ifdef __cplusplus
}
#endif
#endif
