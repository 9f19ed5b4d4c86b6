/* figures.cu: rates and the context's size, measured once per GPU, driver and build.
 *
 * Measuring takes most of the time it takes to open a GPU, and the context's size is only known
 * once all code is loaded and the libraries are warm; the next process reads both. Figures taken
 * while other processes use the GPU are used but not kept.
 */
#include <stdio.h>
#include <string.h>

#include "base/build_id.h"
#include "base/kvfile.h"
#include "base/log.h"
#include "base/str.h"
#include "device/cuda/runtime/state.cuh"

/* device_rates is a list of numbers, whatever their names. */
enum { N_RATES = sizeof(struct device_rates) / sizeof(double) };
static_assert(N_RATES * sizeof(double) == sizeof(struct device_rates), "rates are doubles");

/* Others that hold less are desktops: they do not disturb a measurement. */
#define QUIET_BYTES ((int64_t)1 << 30)

static enum status measure(struct device *d)
{
    struct cuda_state *s = cuda_state_of(d);
    cuda_load_kernels(s);
    TRY(cuda_measure(d));
    s->context_bytes = cuda_ops.used_bytes(d);
    return OK;
}

/* "context rate rate ..."; false for anything else: anybody may have written the file. */
static bool parse(const char *text, struct device_rates *rates, int64_t *context_bytes)
{
    double values[1 + N_RATES];
    char word[40];
    int used;
    for (int i = 0; i < 1 + N_RATES; i++) {
        if (!text || sscanf(text, "%39s%n", word, &used) != 1 || !parse_double(word, &values[i]) ||
            !(values[i] >= 0 && values[i] < 1e18))
            return false;
        text += used;
    }
    if (*text != '\0')
        return false;
    *context_bytes = (int64_t)values[0];
    memcpy(rates, values + 1, sizeof(*rates));
    /* Zero is a link that there is not, but no rate that times are made of. */
    return *context_bytes > 0 && rates->matmul_flops > 0 && rates->memory_bytes > 0 &&
           rates->links[TIER_HOST][TIER_DEVICE].alone > 0 &&
           rates->links[TIER_DEVICE][TIER_HOST].alone > 0;
}

static void print(const struct device *d, struct str *out)
{
    double rates[N_RATES];
    memcpy(rates, &d->rates, sizeof(rates));
    str_addf(out, "%lld", (long long)cuda_state_of(d)->context_bytes);
    for (int i = 0; i < N_RATES; i++)
        str_addf(out, " %.9g", rates[i]);
}

static bool worth_keeping(struct device *d)
{
    struct device_room room;
    return cuda_own_bytes(cuda_state_of(d)) >= 0 && cuda_room(d, &room) == OK &&
           room_others(&room) < QUIET_BYTES;
}

/* A folder that cannot be written costs the next process a second, no more. */
static void keep(struct device *d, struct kvfile *file, const char *key)
{
    struct str value = {};
    print(d, &value);
    if (str_status(&value) != OK || kvfile_put(file, key, str_text(&value)) != OK ||
        kvfile_save(file) != OK)
        log_debug("the GPU's figures are not kept: %s", status_message());
    str_release(&value);
}

static enum status read_or_measure(struct device *d, struct kvfile *file, const char *key)
{
    struct device_rates rates;
    int64_t context_bytes;
    if (parse(kvfile_get(file, key), &rates, &context_bytes)) {
        d->rates = rates;
        cuda_state_of(d)->context_bytes = context_bytes;
        return OK;
    }
    TRY(measure(d));
    if (worth_keeping(d))
        keep(d, file, key);
    return OK;
}

enum status cuda_figures(struct device *d)
{
    const char *folder = cuda_state_of(d)->libraries.cache_folder;
    struct str path = {}, key = {};
    struct kvfile *file = NULL;
    char id[BUILD_ID_TEXT];
    enum status status;
    if (!folder)
        return measure(d);
    str_addf(&path, "%s/devices", folder);
    str_addf(&key, "%s; build %s", d->identity, build_id(id));
    TRY_GOTO(str_status(&path), out);
    TRY_GOTO(str_status(&key), out);
    TRY_GOTO(kvfile_open(&file, str_text(&path)), out);
    status = read_or_measure(d, file, str_text(&key));
out:
    kvfile_free(file);
    str_release(&path);
    str_release(&key);
    return status;
}
