/* regex.h: split patterns of tokenizer.json, written for Oniguruma, in PCRE2's words. Not for other
 * folders.
 *
 *     regex_translate       the pattern: groups, quantifiers, anchors      regex_translate.c
 *     regex_class           "[...]" with nested classes and "&&"           regex_class.c
 *     regex_add_property    \w, \p{Han}, [:alpha:] in Oniguruma's meaning  regex_property.c
 *
 * The same characters mean other things to the two: \h is a hexadecimal digit, ^ and $ are at every
 * line, {2,3}+ repeats a group, (?m) lets a dot match a newline, classes may be nested and
 * intersected. And they follow different versions of Unicode. So nothing is passed through: every
 * construct is read and written out with its meaning made explicit, or refused by its name.
 * Captures are not kept: splitting needs none.
 */
#ifndef SNUG_DATA_REGEX_H
#define SNUG_DATA_REGEX_H

#include "base/str.h"

#ifdef __cplusplus
extern "C" {
#endif

struct regex_reader {
    const char *pattern, *at;
    int caseless, dot_all, extended; /* (?i), (?m), (?x) */
    int depth;
    int32_t last_literal; /* the character written last, -1 after anything else */
};

/* Appends the translation to `out`: ERR_UNSUPPORTED for what has none, ERR_DATA for what is broken.
 */
enum status regex_translate(const char *pattern, struct str *out) MUST_CHECK;
/* Appends what matches one character that the Digits pre-tokenizer cuts out. */
enum status regex_numeric(struct str *out) MUST_CHECK;

/* ---- between the parts ---- */

/* The place in the pattern in front of a message. */
#define REGEX_FAIL(r, code, ...) regex_failed((r), FAIL((code), __VA_ARGS__))
enum status regex_failed(const struct regex_reader *r, enum status status);

/* One character of a class as it is being read: of `body` ("a-z\p{L}"), or of one of `others`
 * ("|[^\n]|..."), which match one character each. */
struct regex_set {
    struct str body, others;
};
void regex_set_release(struct regex_set *set);
/* Appends what matches one character of the set. */
void regex_set_write(const struct regex_set *set, struct str *out);

/* Adds a property by its name in regex_properties.def ("word", ":alpha"), or all but it. */
enum status regex_add_property(const struct regex_reader *r, const char *name, int negated,
                               struct regex_set *set) MUST_CHECK;
/* At the letter of \w \W \s \S \d \D \h \H \p{...} \P{...}: adds it, *is_set = 1. Else 0. */
enum status regex_read_set_escape(struct regex_reader *r, int in_class, struct regex_set *set,
                                  int *is_set) MUST_CHECK;
/* Behind a backslash: a character by its code (\n, \x41, \x{1F600}, \u00E9, \101) or as it is. */
enum status regex_read_character_escape(struct regex_reader *r, int32_t *code_point) MUST_CHECK;
/* A character that stands for itself; the pattern is UTF-8. */
int32_t regex_next_character(struct regex_reader *r);
void regex_write_character(struct str *out, int32_t code_point);
/* ERR_UNSUPPORTED for a character that (?i) lets match several, as "ß" matches "ss". */
enum status regex_check_case(const struct regex_reader *r, int32_t first, int32_t last) MUST_CHECK;
/* At the '[' of a class: appends what matches one character of it. */
enum status regex_class(struct regex_reader *r, struct str *out) MUST_CHECK;

enum { REGEX_MAX_DEPTH = 100 };

#ifdef __cplusplus
}
#endif
#endif
