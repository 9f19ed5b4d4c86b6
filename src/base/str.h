/* str.h: a growable string, and text helpers (numbers and sizes in words, near misses).
 *
 * A struct str is always NUL-terminated once something was added; failures are sticky and
 * reported by str_status() at the end, so that building text reads as a list of additions.
 */
#ifndef SNUG_BASE_STR_H
#define SNUG_BASE_STR_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

struct str {
    char *text; /* NULL while empty */
    size_t n, capacity;
    int failed;
};

void str_release(struct str *s);
void str_add(struct str *s, const char *text);
void str_add_n(struct str *s, const char *text, size_t n);
void str_addf(struct str *s, const char *fmt, ...) PRINTF_LIKE(2, 3);
void str_clear(struct str *s);             /* empty, keeps the memory */
const char *str_text(const struct str *s); /* "" when empty */
char *str_take(struct str *s);             /* caller frees with mem_free */
enum status str_status(const struct str *s) MUST_CHECK;

/* "512 B", "1.50 MiB", "13.3 GiB" into out; returns out. */
enum { BYTES_TEXT = 32 };
const char *format_bytes(char out[BYTES_TEXT], int64_t n_bytes);
/* "1,234,567" */
const char *format_count(char out[BYTES_TEXT], int64_t n);
/* Of things in a second: rounded, "1,235", with two digits below ten, "0.48". */
const char *format_rate(char out[BYTES_TEXT], double per_second);
/* "850 ms", "12.3 s", "4m05s", "1h12m" */
const char *format_duration(char out[BYTES_TEXT], double seconds);

/* "16GiB", "13.3 GB", "512M", "1e9", "4096" into bytes. GiB/MiB/KiB and G/M/K are powers of
 * 1024; GB/MB/KB powers of 1000. False when it is not a size. */
int parse_bytes(const char *text, int64_t *n_bytes);
int parse_int(const char *text, int64_t *value);   /* accepts 5e8, 1_000 */
int parse_double(const char *text, double *value); /* whole text or false; no nan/inf */
int parse_bool(const char *text, int *value);      /* true/false yes/no on/off 1/0 */

/* The candidate nearest to `word` by edit distance, or NULL when none is near enough to
 * suggest. `-`, `_` and case do not count. */
const char *suggest(const char *word, const char *const *candidates, size_t n);

int str_starts_with(const char *s, const char *prefix);
int str_ends_with(const char *s, const char *suffix);

#ifdef __cplusplus
}
#endif
#endif
