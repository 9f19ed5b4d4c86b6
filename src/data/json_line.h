/* json_line.h: one line of a JSONL file, of any length, read without holding it in memory.
 *
 * A line is looked through once, which checks it and finds where the values of the members that are
 * wanted begin; these are then read in pieces.
 */
#ifndef SNUG_DATA_JSON_LINE_H
#define SNUG_DATA_JSON_LINE_H

#include "data/byte_reader.h"

#ifdef __cplusplus
extern "C" {
#endif

enum member_kind { MEMBER_ABSENT, MEMBER_STRING, MEMBER_ARRAY, MEMBER_NULL, MEMBER_OTHER };

struct json_member {
    const char *key; /* as the caller asks for it */
    enum member_kind kind;
    int64_t at;         /* byte of its value in the file */
    int64_t n_elements; /* of an array */
};

enum { JSON_KEY_BYTES = 128 };

/* Looks through the line at the reader: one object, of which the `wanted` members are filled in.
 * *is_blank lines have none. Ends behind the line. `first_key` is the first key there is, "" for
 * none, cut short where it is long. ERR_DATA, with the column, for what is no JSON object. */
enum status json_line_scan(struct byte_reader *r, struct json_member *wanted, size_t n_wanted,
                           char first_key[JSON_KEY_BYTES], int *is_blank) MUST_CHECK;

/* A string's text in pieces: begin at its quote, then up to n bytes a call (n >= 4); 0 at the end.
 * The line was looked through: there is nothing left to be wrong with it. */
void json_string_begin(struct byte_reader *r, int64_t at);
size_t json_string_read(struct byte_reader *r, char *out, size_t n);

/* An array's whole numbers: begin at its bracket; false for an element that is none (which it stays
 * before). Numbers beyond int64 stop at its ends. */
void json_array_begin(struct byte_reader *r, int64_t at);
int json_array_next(struct byte_reader *r, int64_t *value);

#ifdef __cplusplus
}
#endif
#endif
