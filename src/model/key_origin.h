/* key_origin.h: who wrote the keys of a model's config, and where.
 *
 * A config.json comes from many programs and versions and carries much that means nothing here, so
 * keys that nobody asks for are let through. What a person writes into a file of settings is meant
 * to have an effect: there an unknown key is a mistake, and messages name its line.
 */
#ifndef SNUG_MODEL_KEY_ORIGIN_H
#define SNUG_MODEL_KEY_ORIGIN_H

#include <jansson.h>

#ifdef __cplusplus
extern "C" {
#endif

struct key_origin {
    const char *where;     /* the config as a whole, for messages */
    const json_t *written; /* the keys a person wrote; NULL: none. Borrowed */
    /* "demo.yaml:12" of such a key, or of a path "rope_scaling.factor"; NULL: `where` has to do */
    const char *(*place)(const void *user, const char *key);
    const void *user;
};

#ifdef __cplusplus
}
#endif
#endif
