#include "api/env_rates.h"

#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"

/* ---- measuring ------------------------------------------------------------------------------- */

static enum status measure(struct device *d, const char *folder)
{
    struct calibrations found;
    TRY(calibrate(d, folder, &found));
    /* A cache that cannot be written costs the next process its time, no more. */
    if (calibrations_store(d, folder, &found) != OK)
        log_warn("what was measured is not kept: %s", status_message());
    return OK;
}

/* The device is closed on return. Measured without a folder to keep it in, it is only shown. */
static enum status look(struct rates_view *v, struct device *d, const struct snug_env_options *o)
{
    struct calibrations *known = &v->of[v->n].known;
    enum status status = OK;
    if (o->measure && !o->cache_folder)
        status = calibrate(d, NULL, known);
    else if (o->measure)
        status = measure(d, o->cache_folder);
    if (status == OK && o->cache_folder)
        status = calibrations_load(d, o->cache_folder, known);
    (void)snprintf(v->of[v->n].device, sizeof(v->of[v->n].device), "%s", d->description);
    v->n++;
    device_close(d);
    return status;
}

/* What plans go by is measured again too, when a plan next asks for it. */
static void forget_figures(const char *folder)
{
    static const char *const files[] = {"devices", "disks"};
    for (size_t i = 0; i < ARRAY_LEN(files); i++) {
        struct str path = {0};
        str_addf(&path, "%s/%s", folder, files[i]);
        if (str_status(&path) == OK)
            (void)unlink(str_text(&path));
        str_release(&path);
    }
}

enum status rates_view_take(struct rates_view *v, const struct snug_env_options *o)
{
    struct device d;
    *v = (struct rates_view){0};
    if (o->measure && o->cache_folder)
        forget_figures(o->cache_folder);
    TRY(device_open_cpu_cached(&d, 0, o->cache_folder));
    TRY(look(v, &d, o));
    if (device_count_cuda() == 0 || device_open_cuda_cached(&d, 0, o->cache_folder) != OK)
        return OK;
    return look(v, &d, o);
}

/* ---- text ------------------------------------------------------------------------------------ */

static void add_rate(struct str *out, const struct calibration *c)
{
    double scale = c->is_flops ? c->rate : c->rate / 1e9;
    const char *unit = "GB/s";
    if (c->is_flops) {
        bool tera = c->rate >= 1e12;
        scale = c->rate / (tera ? 1e12 : 1e9);
        unit = tera ? "TFLOP/s" : "GFLOP/s";
    }
    str_addf(out, "  %-36s %8.1f %-8s", c->name, scale, unit);
}

static void add_row(struct str *out, const struct calibration *c, int64_t now)
{
    char date[32] = "", age[32];
    time_t when = (time_t)c->when;
    struct tm local;
    if (localtime_r(&when, &local))
        (void)strftime(date, sizeof(date), "%Y-%m-%d %H:%M", &local);
    add_rate(out, c);
    if (c->is_guessed)
        str_add(out, "as the one above goes");
    else
        str_addf(out, "spread %3.0f %%", 100.0 * c->spread);
    str_addf(out, "  %s, %s ago%s\n", date, calibration_age(c, now, age),
             c->disturbed ? "; disturbed, measure again" : "");
}

void rates_view_text(const struct rates_view *v, struct str *out)
{
    int64_t now = (int64_t)time(NULL);
    for (int i = 0; i < v->n; i++) {
        const struct calibrations *k = &v->of[i].known;
        str_addf(out, "%-12s %s%s\n", "measured", v->of[i].device,
                 k->n ? "" : ": nothing yet (snug env --measure)");
        for (int r = 0; r < k->n; r++)
            add_row(out, &k->rows[r], now);
    }
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static json_t *pack_rows(const struct calibrations *k)
{
    json_t *rows = json_array();
    for (int i = 0; rows && i < k->n; i++) {
        const struct calibration *c = &k->rows[i];
        json_t *row = json_pack("{s:s, s:f, s:s, s:f, s:I, s:b, s:b}", "name", c->name, "rate",
                                c->rate, "unit", c->is_flops ? "FLOP/s" : "bytes/s", "spread",
                                c->spread, "when", (json_int_t)c->when, "disturbed", c->disturbed,
                                "extrapolated", c->is_guessed);
        if (json_array_append_new(rows, row) != 0) {
            json_decref(rows);
            return NULL;
        }
    }
    return rows;
}

json_t *rates_view_json(const struct rates_view *v)
{
    json_t *all = json_array();
    for (int i = 0; all && i < v->n; i++) {
        json_t *one =
            json_pack("{s:s, s:o}", "device", v->of[i].device, "rates", pack_rows(&v->of[i].known));
        if (json_array_append_new(all, one) != 0) {
            json_decref(all);
            return NULL;
        }
    }
    return all;
}
