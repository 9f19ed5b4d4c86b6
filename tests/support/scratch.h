/* scratch.h: a folder under /tmp for one test, and small things tests do with files. */
#ifndef SNUG_TESTS_SCRATCH_H
#define SNUG_TESTS_SCRATCH_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { SCRATCH_PATH = 512 };

struct scratch {
    char folder[64];
};

void scratch_init(struct scratch *s); /* fails the test when it cannot */
/* Where there is a file system in memory, there: for tests that wait for the disk thousands of
 * times, and where nothing depends on its being one. */
void scratch_init_in_memory(struct scratch *s);
void scratch_release(struct scratch *s); /* removes everything */

/* folder/name into out; returns out. */
const char *scratch_path(const struct scratch *s, const char *name, char out[SCRATCH_PATH]);
/* Writes folder/name, making the folders in between. */
void scratch_write(const struct scratch *s, const char *name, const void *data, size_t n_bytes);
void scratch_write_text(const struct scratch *s, const char *name, const char *text);

/* Fails the test, showing the message, unless the last error's message contains `part`. */
void expect_message(const char *part);

#ifdef __cplusplus
}
#endif
#endif
