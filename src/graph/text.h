/* text.h: reading and writing the pieces that the text form of graphs and the sample texts of ops
 * share: numbers, dtypes, shapes, quoted names, attribute lists. Private to src/graph.
 *
 * Errors say "line L, column C: ..." (both from 1). White space, newlines and `# comments` separate
 * tokens and mean nothing else.
 */
#ifndef SNUG_GRAPH_TEXT_H
#define SNUG_GRAPH_TEXT_H

#include "base/str.h"
#include "graph/op.h"

#ifdef __cplusplus
extern "C" {
#endif

struct text {
    const char *at;         /* the next character; the text is NUL-terminated and borrowed */
    const char *line_start; /* of the line `at` is in */
    int line;
};

/* Where something stood, for errors found after it was read. */
struct text_place {
    int line, column;
};

void text_init(struct text *t, const char *source);
/* Skips white space and comments; says where the next token is. */
struct text_place text_here(struct text *t);

#define TEXT_FAIL_AT(place, ...) \
    status_prefix(FAIL(ERR_DATA, __VA_ARGS__), "line %d, column %d", (place).line, (place).column)
#define TEXT_FAIL(t, ...) TEXT_FAIL_AT(text_here(t), __VA_ARGS__)

bool text_at_end(struct text *t);
/* Consumes `token` (punctuation) when it comes next. */
bool text_take(struct text *t, const char *token);
enum status text_need(struct text *t, const char *token) MUST_CHECK;

/* A name of letters, digits and underscores. */
enum { TEXT_WORD = 64 };
enum status text_word(struct text *t, char out[TEXT_WORD]) MUST_CHECK;
/* Consumes `word` when it comes next as a whole word. */
bool text_take_word(struct text *t, const char *word);

/* A quoted string, appended to out; text_add_quoted writes one. */
enum status text_quoted(struct text *t, struct str *out) MUST_CHECK;
void text_add_quoted(struct str *out, const char *s);

enum status text_int(struct text *t, int64_t *value) MUST_CHECK;
/* Decimal numbers, inf and -inf; 0x... is the bit pattern of a double (NaNs keep their payload). */
enum status text_double(struct text *t, double *value) MUST_CHECK;
void text_add_double(struct str *out, double x);

/* One element of a tensor, exact: data points at dtype_size(dtype) bytes. */
enum status text_element(struct text *t, enum dtype dtype, void *data) MUST_CHECK;
void text_add_element(struct str *out, enum dtype dtype, const void *data);

enum status text_dtype(struct text *t, enum dtype *d) MUST_CHECK;
/* "[4,256]"; "[]" is rank 0. Dimensions are not negative. */
enum status text_shape(struct text *t, struct shape *s) MUST_CHECK;
void text_add_shape(struct str *out, const struct shape *s);

enum { TEXT_MAX_ATTRS = 24 };
/* An optional "{name=value, ...}": fills attrs (one per attr_def) with defaults and what is given.
 * An unknown, repeated or missing name is ERR_SHAPE and names the op. */
enum status text_attrs(struct text *t, const struct op_def *d, struct attr *attrs) MUST_CHECK;
/* The attributes that differ from their defaults (and required ones); nothing when all are. */
void text_add_attrs(struct str *out, const struct op_def *d, const struct attr *attrs);

#ifdef __cplusplus
}
#endif
#endif
