/* file.h: files, whole. Every failure names the path and what the system said.
 *
 * Files that somebody named are written through output.h. file_fail_after() lets tests make the
 * n-th write-side call fail as a full disk would.
 */
#ifndef SNUG_BASE_FILE_H
#define SNUG_BASE_FILE_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The error of a call that has just failed, by errno. ERR_IO, except where that says nothing about
 * the file: ERR_MEMORY, and ERR_FAILED when this process or machine may open no more files. */
enum status file_fail(const char *what, const char *path);

/* For reading. Anything but a regular file is an error that says what it is: a pipe where a file is
 * due does not make us wait. */
enum status file_open_regular(const char *path, int *fd, int64_t *n_bytes) MUST_CHECK;

/* A regular file mapped read-only. */
struct file_map {
    const uint8_t *data; /* NULL when the file is empty */
    size_t n_bytes;
};

enum status file_map_open(struct file_map *m, const char *path) MUST_CHECK;
void file_map_close(struct file_map *m);

/* A file read in pieces, at any place and by any number of threads. */
struct file_in {
    int fd;
    int64_t n_bytes;  /* when it was opened */
    const char *path; /* borrowed */
};

enum status file_in_open(struct file_in *f, const char *path) MUST_CHECK;
/* n bytes from `at` on; ERR_IO when the file ends before. */
enum status file_in_read(const struct file_in *f, int64_t at, void *out, size_t n) MUST_CHECK;
void file_in_close(struct file_in *f); /* safe on a closed one */

/* The file's bytes plus a NUL, in heap memory the caller frees with mem_free. */
enum status file_read(const char *path, char **text, size_t *n_bytes) MUST_CHECK;

/* The same from a file that may be a pipe, as `<(command)` of a shell is, and which is read to its
 * end; more than `most` bytes are an error. */
enum status file_read_stream(const char *path, size_t most, char **text,
                             size_t *n_bytes) MUST_CHECK;

/* A file being written under `path`; nothing is buffered by us, so bytes are counted exactly. */
struct file_out {
    int fd;
    int64_t n_bytes;
    const char *path; /* for messages; borrowed */
};

enum status file_out_open(struct file_out *f, const char *path) MUST_CHECK; /* truncates */
/* Opens `temporary`, which is to be renamed to `path` once it is whole: messages name `path`. */
enum status file_out_open_for(struct file_out *f, const char *temporary,
                              const char *path) MUST_CHECK;
enum status file_out_append(struct file_out *f, const char *path) MUST_CHECK;
enum status file_out_open_existing(struct file_out *f, const char *path) MUST_CHECK; /* as it is */
enum status file_out_write(struct file_out *f, const void *data, size_t n_bytes) MUST_CHECK;
enum status file_out_sync(struct file_out *f) MUST_CHECK;
enum status file_out_close(struct file_out *f) MUST_CHECK; /* safe on a closed one */

/* A whole file at once, as output.h writes it. */
enum status file_write_atomic(const char *path, const void *data, size_t n_bytes) MUST_CHECK;

enum status file_rename(const char *from, const char *to) MUST_CHECK;
enum status file_sync_folder(const char *path) MUST_CHECK;
enum status file_make_folders(const char *path) MUST_CHECK; /* mkdir -p */
enum status file_remove_tree(const char *path) MUST_CHECK;  /* rm -r; a missing one is fine */
int file_exists(const char *path);
int file_is_same(const char *a, const char *b); /* one file under two names */
int file_is_regular(const char *path);
int file_is_folder(const char *path);

/* Makes the n-th write, sync or rename from now on fail with ENOSPC; 0 switches it off. */
void file_fail_after(int64_t n);

#ifdef __cplusplus
}
#endif
#endif
