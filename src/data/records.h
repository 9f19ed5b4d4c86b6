/* records.h: the records of a file, one after the other: JSON objects.
 *
 *     .jsonl, .ndjson   an object a line
 *     .json             the same, or one array of objects, which is never in memory as a whole
 *     .csv              a header, then lines of as many fields (RFC 4180); values are strings
 *
 * What is held is one record, of at most so many bytes as the reader is told.
 */
#ifndef SNUG_DATA_RECORDS_H
#define SNUG_DATA_RECORDS_H

#include <jansson.h>

#include "base/str.h"
#include "data/byte_reader.h"

#ifdef __cplusplus
extern "C" {
#endif

struct records;

/* ERR_DATA for files that cannot be read or are known to be of another kind (Parquet). */
enum status records_open(struct records **out, const char *path, int64_t most_bytes) MUST_CHECK;
void records_close(struct records *r); /* NULL is fine */

/* The next record, the caller's to json_decref; NULL at the end. Errors name file and line. */
enum status records_next(struct records *r, json_t **out) MUST_CHECK;
/* Where the last one begins: "chats.jsonl: line 12". Lives as long as the reader. */
const char *records_where(const struct records *r);

/* Does a file's name say that it holds records that are no lines of JSON? */
int records_is_csv(const char *path);

/* Memory that a reader takes for records of at most so many bytes, itself and what is parsed. */
int64_t records_bytes(int64_t record_bytes);

/* ---- inside data/ ---------------------------------------------------------------------------- */

struct records {
    struct file_in file;
    struct byte_reader in;
    int is_csv, is_array, has_begun;
    size_t most;
    int64_t line;  /* of the byte that is read next, from 1 on */
    int64_t first; /* line where the record at hand begins */
    struct str text, where;
    json_t *header; /* of a CSV file: its columns */
};

/* The next byte, or -1 at the end; counts lines. */
int records_byte(struct records *r);
/* One more byte of the record at hand. */
enum status records_keep(struct records *r, int byte) MUST_CHECK;
/* records_csv.c */
enum status records_next_csv(struct records *r, json_t **out) MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
