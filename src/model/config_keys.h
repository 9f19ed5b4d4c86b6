/* config_keys.h: typed reading of the keys of a Hugging Face config.
 *
 *     struct keys k;
 *     keys_init(&k, config, "");
 *     c->heads = keys_int(&k, "n_head", 12, 1, 65536);
 *     c->epsilon = keys_float(&k, "layer_norm_epsilon", 1e-5, 0, 1);
 *     TRY(keys_finish(&k));
 *
 * Errors are sticky: the first is kept (ERR_CONFIG, naming the key), later calls return presets.
 * A key whose value is null counts as absent. Keys nobody asked for are ignored, since checkpoints
 * carry many, unless one looks like a misspelling of a key that was asked for and not found.
 */
#ifndef SNUG_MODEL_CONFIG_KEYS_H
#define SNUG_MODEL_CONFIG_KEYS_H

#include <jansson.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { KEYS_MAX = 96 };

struct keys {
    const json_t *object; /* borrowed */
    const char *path;     /* put before key names in messages: "" or "rope_scaling." */
    enum status status;
    const char *asked[KEYS_MAX];
    int n_asked;
};

/* As a preset: the key must be there. */
#define KEYS_REQUIRED_INT   INT64_MIN
#define KEYS_REQUIRED_FLOAT ((double)NAN)

void keys_init(struct keys *k, const json_t *object, const char *path);

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

/* A known key whose value does not matter to us. */
void keys_ignore(struct keys *k, const char *name);

/* Records a failure found by the caller, unless there was one before (whose message stays). */
#define KEYS_FAIL(k, ...)                    \
    do {                                     \
        if ((k)->status == OK)               \
            (k)->status = FAIL(__VA_ARGS__); \
    } while (0)

enum status keys_finish(struct keys *k) MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
