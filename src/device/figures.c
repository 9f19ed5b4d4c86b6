/* figures.c: a file of "IDENTITY; build ID" and "[BYTES] RATE RATE ...". */
#include "device/figures.h"

#include <stdio.h>
#include <string.h>

#include "base/build_id.h"
#include "base/kvfile.h"
#include "base/log.h"
#include "base/str.h"

/* device_rates is a list of numbers, whatever their names. */
enum { N_RATES = sizeof(struct device_rates) / sizeof(double) };
_Static_assert(N_RATES * sizeof(double) == sizeof(struct device_rates), "rates are doubles");

/* A number from 0 on; false for anything else: anybody may have written the file. */
static bool take_number(const char **text, double *out)
{
    char word[40];
    int used;
    if (sscanf(*text, "%39s%n", word, &used) != 1 || !parse_double(word, out))
        return false;
    *text += used;
    return *out >= 0 && *out < 1e18;
}

/* Zero is a link that there is not, but no rate that times are made of. */
static bool make_sense(const struct device_rates *r)
{
    return r->matmul_flops > 0 && r->memory_bytes > 0 &&
           r->links[TIER_HOST][TIER_DEVICE].alone > 0 && r->links[TIER_DEVICE][TIER_HOST].alone > 0;
}

static bool parse(const char *text, struct device_rates *rates, int64_t *n_bytes)
{
    double size = 0, values[N_RATES];
    if (!text || (n_bytes && !(take_number(&text, &size) && size >= 1)))
        return false;
    for (int i = 0; i < N_RATES; i++) {
        if (!take_number(&text, &values[i]))
            return false;
    }
    memcpy(rates, values, sizeof(*rates));
    if (*text != '\0' || !make_sense(rates))
        return false;
    if (n_bytes)
        *n_bytes = (int64_t)size;
    return true;
}

/* To the last bit: what was measured now plans the same now and later. */
static void print(const struct device_rates *rates, const int64_t *n_bytes, struct str *out)
{
    double values[N_RATES];
    memcpy(values, rates, sizeof(values));
    if (n_bytes)
        str_addf(out, "%lld ", (long long)*n_bytes);
    for (int i = 0; i < N_RATES; i++)
        str_addf(out, "%s%.17g", i > 0 ? " " : "", values[i]);
}

/* A folder that cannot be written costs the next process a moment, no more. */
static void keep(const struct device *d, const int64_t *n_bytes, struct kvfile *file,
                 const char *key)
{
    struct str value = {0};
    print(&d->rates, n_bytes, &value);
    if (str_status(&value) != OK || kvfile_put(file, key, str_text(&value)) != OK ||
        kvfile_save(file) != OK)
        log_debug("the device's figures are not kept: %s", status_message());
    str_release(&value);
}

static enum status read_or_measure(struct device *d, const struct figures_source *source,
                                   struct kvfile *file, const char *key)
{
    struct device_rates rates;
    bool undisturbed;
    if (parse(kvfile_get(file, key), &rates, source->n_bytes)) {
        d->rates = rates;
        return OK;
    }
    TRY(source->measure(d, &undisturbed));
    if (undisturbed)
        keep(d, source->n_bytes, file, key);
    return OK;
}

enum status device_figures(struct device *d, const char *cache_folder,
                           const struct figures_source *source)
{
    struct str path = {0}, key = {0};
    struct kvfile *file = NULL;
    char id[BUILD_ID_TEXT];
    bool undisturbed;
    enum status status;
    if (!cache_folder)
        return source->measure(d, &undisturbed);
    str_addf(&path, "%s/devices", cache_folder);
    str_addf(&key, "%s; build %s", d->identity, build_id(id));
    TRY_GOTO(str_status(&path), out);
    TRY_GOTO(str_status(&key), out);
    TRY_GOTO(kvfile_open(&file, str_text(&path)), out);
    status = read_or_measure(d, source, file, str_text(&key));
out:
    kvfile_free(file);
    str_release(&path);
    str_release(&key);
    return status;
}
