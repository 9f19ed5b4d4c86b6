/* output.h: a file under a name that somebody gave, whole or not at all. Every file Snug is asked
 * for goes through here; what stands under the name decides how:
 *
 *   nothing, a regular file   written under a temporary name beside it, synced, renamed: a reader
 *                             sees the old one or the new one
 *   a symbolic link           the same for what it points to; the link stays
 *   a device, a pipe          written into where it is: it is not a file to be replaced
 *   a folder                  an error
 *
 *     struct output o;
 *     TRY(output_open(&o, path));
 *     status = file_out_write(&o.file, data, n_bytes);
 *     if (status == OK)
 *         status = output_commit(&o);
 *     output_abandon(&o);
 */
#ifndef SNUG_BASE_OUTPUT_H
#define SNUG_BASE_OUTPUT_H

#include "base/file.h"

#ifdef __cplusplus
extern "C" {
#endif

struct output {
    struct file_out file;
    char *final;     /* what the name leads to */
    char *temporary; /* NULL: written where it is */
};

/* Could a file be written under that name now? For what is written at the end of long work; leaves
 * no trace. Devices and pipes are taken at their word: to open one is to begin. */
enum status output_check(const char *path) MUST_CHECK;

/* On failure there is nothing to commit or abandon. */
enum status output_open(struct output *o, const char *path) MUST_CHECK;
/* What was written becomes the file. */
enum status output_commit(struct output *o) MUST_CHECK;
/* Leaves no trace of what was not committed (what went into a device is gone). Releases the rest;
 * also called after output_commit. */
void output_abandon(struct output *o);

#ifdef __cplusplus
}
#endif
#endif
