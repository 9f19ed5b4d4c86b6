#include "device/beside.h"

#include <stdio.h>

#include "base/build_id.h"
#include "base/kvfile.h"
#include "base/log.h"
#include "base/str.h"

/* More is no library's: what a damaged file says is left alone. */
#define MOST ((int64_t)8 << 30)

static void make_key(const struct device *d, char out[KVFILE_KEY_MOST])
{
    char id[BUILD_ID_TEXT];
    (void)snprintf(out, KVFILE_KEY_MOST, "%s; build %s", d->identity, build_id(id));
}

/* 0: it says nothing of use. */
static int64_t parse(const char *text)
{
    double n_bytes;
    bool is_one = text && parse_double(text, &n_bytes) && n_bytes >= 1 && n_bytes <= (double)MOST;
    return is_one ? (int64_t)n_bytes : 0;
}

void beside_load(struct device *d, const char *cache_folder)
{
    char key[KVFILE_KEY_MOST];
    struct kvfile *file = NULL;
    if (!cache_folder || !d->ops->memory_is_apart || d->is_absent ||
        kvfile_open_in(&file, cache_folder, "processes") != OK)
        return;
    make_key(d, key);
    d->beside_bytes = parse(kvfile_get(file, key));
    kvfile_free(file);
}

void beside_store(const struct device *d, const char *cache_folder, int64_t n_bytes)
{
    char key[KVFILE_KEY_MOST], value[32];
    struct kvfile *file = NULL;
    if (!cache_folder || !d->ops->memory_is_apart || d->is_absent || n_bytes < 1 ||
        n_bytes > MOST || kvfile_open_in(&file, cache_folder, "processes") != OK)
        return;
    make_key(d, key);
    int64_t known = parse(kvfile_get(file, key));
    (void)snprintf(value, sizeof(value), "%lld", (long long)n_bytes);
    if ((known == 0 || n_bytes < known) &&
        (kvfile_put(file, key, value) != OK || kvfile_save(file) != OK))
        log_debug("what the process held is not kept: %s", status_message());
    kvfile_free(file);
}
