/* calibrations.c: measured rates between processes: a file of "DEVICE; NAME" and "RATE SPREAD WHEN
 * flops|bytes [disturbed] [guessed]". */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/file.h"
#include "base/kvfile.h"
#include "base/str.h"
#include "device/calibrate.h"

/* The names there may be, in the order of reports: those of a measurement. */
static const char *const names[] = {
    "product 256 x 1024 x 1024, f32",
    "product 1024 x 1024 x 1024, f32",
    "product 4096 x 1024 x 1024, f32",
    "product 16384 x 1024 x 1024, f32",
    "product 256 x 1024 x 1024, bf16",
    "product 1024 x 1024 x 1024, bf16",
    "product 4096 x 1024 x 1024, bf16",
    "product 16384 x 1024 x 1024, bf16",
    "product 256 x 1024 x 1024, f16",
    "product 1024 x 1024 x 1024, f16",
    "product 4096 x 1024 x 1024, f16",
    "product 16384 x 1024 x 1024, f16",
    "memory, read and written",
    "link, host to device",
    "link, device to host",
    "link, each way when both are used",
    "host copy, one thread",
    "disk, written",
    "disk, read",
    "disk, written in turns with reads",
    "disk, read in turns with writes",
};

static void make_key(const struct device *d, const char *name, char out[KVFILE_KEY_MOST])
{
    (void)snprintf(out, KVFILE_KEY_MOST, "%s; %s", d->identity, name);
}

/* False for what is no measurement: anybody may have written the file. */
static bool parse(const char *text, struct calibration *c)
{
    char rate[40], spread[40], unit[8];
    long long when;
    int end = 0;
    if (!text || sscanf(text, "%39s %39s %lld %7s%n", rate, spread, &when, unit, &end) != 4)
        return false;
    c->when = when;
    c->is_flops = strcmp(unit, "flops") == 0;
    c->disturbed = strstr(text + end, "disturbed") != NULL;
    c->is_guessed = strstr(text + end, "guessed") != NULL;
    return parse_double(rate, &c->rate) && parse_double(spread, &c->spread) && c->rate > 0 &&
           c->rate < 1e18 && c->spread >= 0 && when > 0;
}

enum status calibrations_load(const struct device *d, const char *folder, struct calibrations *out)
{
    struct kvfile *file = NULL;
    char key[KVFILE_KEY_MOST];
    *out = (struct calibrations){0};
    if (!folder)
        return OK;
    TRY(kvfile_open_in(&file, folder, "calibration"));
    for (size_t i = 0; i < ARRAY_LEN(names) && out->n < CALIBRATIONS_MOST; i++) {
        struct calibration c = {0};
        make_key(d, names[i], key);
        if (!parse(kvfile_get(file, key), &c))
            continue;
        (void)snprintf(c.name, sizeof(c.name), "%s", names[i]);
        out->rows[out->n++] = c;
    }
    kvfile_free(file);
    return OK;
}

static enum status store(struct kvfile *file, const struct device *d, const struct calibration *c)
{
    struct calibration before = {0};
    char key[KVFILE_KEY_MOST], value[160];
    make_key(d, c->name, key);
    if (c->disturbed && parse(kvfile_get(file, key), &before) && !before.disturbed)
        return OK;
    (void)snprintf(value, sizeof(value), "%.6g %.3g %lld %s%s%s", c->rate, c->spread,
                   (long long)c->when, c->is_flops ? "flops" : "bytes",
                   c->disturbed ? " disturbed" : "", c->is_guessed ? " guessed" : "");
    return kvfile_put(file, key, value);
}

enum status calibrations_store(const struct device *d, const char *folder,
                               const struct calibrations *c)
{
    struct kvfile *file = NULL;
    enum status status;
    if (!folder)
        return OK;
    TRY(kvfile_open_in(&file, folder, "calibration"));
    for (int i = 0; i < c->n; i++)
        TRY_GOTO(store(file, d, &c->rows[i]), out);
    status = kvfile_save(file);
out:
    kvfile_free(file);
    return status;
}

const char *calibration_age(const struct calibration *c, int64_t now, char out[32])
{
    static const struct {
        int64_t seconds;
        const char *unit;
    } units[] = {{86400, "day"}, {3600, "hour"}, {60, "minute"}, {1, "second"}};
    int64_t age = MAX(now - c->when, (int64_t)0);
    size_t i = 0;
    while (i + 1 < ARRAY_LEN(units) && age < units[i].seconds)
        i++;
    int64_t n = age / units[i].seconds;
    (void)snprintf(out, 32, "%lld %s%s", (long long)n, units[i].unit, n == 1 ? "" : "s");
    return out;
}
