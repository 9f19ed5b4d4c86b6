/* config_keys.h: typed reading of the keys of a Hugging Face config.
 *
 *     struct keys k;
 *     keys_init(&k, config, origin);
 *     c->heads = keys_int(&k, "n_head", 12, 1, 65536);
 *     c->epsilon = keys_float(&k, "layer_norm_epsilon", 1e-5, 0, 1);
 *     TRY(keys_finish(&k));
 *
 * Errors are collected (ERR_CONFIG, naming the key and its place); a key that is wrong reads as its
 * preset or lowest value. A key whose value is null counts as absent. Of the keys nobody asked for,
 * those a person wrote are errors, unless inert_keys.def has them (see key_origin.h); the others
 * are let through unless one looks like a misspelling of a key that was asked for and not found.
 */
#ifndef SNUG_MODEL_CONFIG_KEYS_H
#define SNUG_MODEL_CONFIG_KEYS_H

#include <jansson.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/problems.h"
#include "base/status.h"
#include "model/key_origin.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { KEYS_MAX = 96 };

struct keys {
    const json_t *object;            /* borrowed */
    const struct key_origin *origin; /* borrowed; NULL: unknown */
    const char *path;                /* put before key names: "" or "rope_scaling." */
    struct keys *outer;              /* NULL: this is the outermost, which collects the errors */
    struct problems problems;
    enum status status; /* not a mistake of the user's: lack of memory */
    const char *asked[KEYS_MAX];
    int n_asked;
};

/* As a preset: the key must be there. */
#define KEYS_REQUIRED_INT   INT64_MIN
#define KEYS_REQUIRED_FLOAT ((double)NAN)

void keys_init(struct keys *k, const json_t *object, const struct key_origin *origin);
/* The keys of an object inside another; errors go to the outer one. */
void keys_init_inner(struct keys *k, struct keys *outer, const json_t *object, const char *path);

/* No error so far. */
bool keys_good(const struct keys *k);

/* There and not null. */
bool keys_has(struct keys *k, const char *name);
/* There, null or not. */
bool keys_given(struct keys *k, const char *name);

/* Values in [low, high]. 1e6 is an integer, 1.5 is not; 3 is a float. */
int64_t keys_int(struct keys *k, const char *name, int64_t preset, int64_t low, int64_t high);
/* The same for a key whose preset is computed from other keys (`from` says how): it has to be in
 * the range too. */
int64_t keys_int_derived(struct keys *k, const char *name, int64_t preset, int64_t low,
                         int64_t high, const char *from);
double keys_float(struct keys *k, const char *name, double preset, double low, double high);
bool keys_bool(struct keys *k, const char *name, bool preset);
/* Borrowed from the config; NULL as preset is fine. */
const char *keys_text(struct keys *k, const char *name, const char *preset);
/* NULL when absent. */
const json_t *keys_object(struct keys *k, const char *name);
const json_t *keys_array(struct keys *k, const char *name);

/* A token id, or the first of a list of them; -1 when absent. */
int64_t keys_token(struct keys *k, const char *name);

/* Records an error of a key that the caller found. */
#define KEYS_FAIL(k, name, code, ...) keys_note((k), (name), FAIL((code), __VA_ARGS__))
void keys_note(struct keys *k, const char *name, enum status s);

/* Looks for keys that nobody asked for. */
void keys_finish_inner(struct keys *k);
/* The same for the outermost keys; then all errors as one. Releases what was collected. */
enum status keys_finish(struct keys *k) MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
