#include "cli/points.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"

const char *point_kind_name(enum point_kind k)
{
    static const char *const names[POINT_KIND_COUNT] = {
        [POINT_RESIDENT] = "all on the device",
        [POINT_RECOMPUTED] = "blocks recomputed",
        [POINT_ACTIVATIONS] = "activations on the host",
        [POINT_OPTIMIZER] = "optimizer on the host",
        [POINT_GRADIENTS] = "gradients on the host",
        [POINT_WEIGHTS] = "weights on the host",
        [POINT_OVER] = "does not fit",
    };
    return names[k];
}

/* ---- words ----------------------------------------------------------------------------------- */

static enum point_kind kind_of(const struct snug_forecast *f)
{
    static const struct {
        enum snug_extent extent;
        enum point_kind kind;
    } order[] = {
        {SNUG_EXTENT_WEIGHTS, POINT_WEIGHTS},       {SNUG_EXTENT_GRADIENTS, POINT_GRADIENTS},
        {SNUG_EXTENT_OPTIMIZER, POINT_OPTIMIZER},   {SNUG_EXTENT_ACTIVATIONS, POINT_ACTIVATIONS},
        {SNUG_EXTENT_RECOMPUTED, POINT_RECOMPUTED},
    };
    if (!f->fits)
        return POINT_OVER;
    for (size_t i = 0; i < ARRAY_LEN(order); i++) {
        if (f->extents[order[i].extent] > 0)
            return order[i].kind;
    }
    return POINT_RESIDENT;
}

/* "weights 12/29, optimizer 29/29 on the host; 28/28 blocks recomputed" */
static void describe(const struct snug_forecast *f, char *out, size_t n_out)
{
    static const struct {
        enum snug_extent extent;
        const char *what;
    } away[] = {{SNUG_EXTENT_WEIGHTS, "weights"},
                {SNUG_EXTENT_GRADIENTS, "gradients"},
                {SNUG_EXTENT_OPTIMIZER, "optimizer"},
                {SNUG_EXTENT_ACTIVATIONS, "activations"}};
    struct str s = {0};
    for (size_t i = 0; i < ARRAY_LEN(away); i++) {
        int n = f->extents[away[i].extent];
        if (n > 0)
            str_addf(&s, "%s%s %d/%d", s.n ? ", " : "", away[i].what, n, f->n_blocks + 1);
    }
    str_add(&s, s.n ? " on the host" : "");
    if (f->n_blocks_recomputed > 0)
        str_addf(&s, "%s%d/%d blocks recomputed", s.n ? "; " : "", f->n_blocks_recomputed,
                 f->n_blocks);
    (void)snprintf(out, n_out, "%s", s.n ? str_text(&s) : point_kind_name(POINT_RESIDENT));
    str_release(&s);
}

const char *point_lack(const struct point *p, char out[64])
{
    char bytes[BYTES_TEXT];
    int64_t over =
        p->device_is_short ? p->device_needs - p->device_budget : p->host_needs - p->host_budget;
    (void)snprintf(out, 64, "%s of %s memory", format_bytes(bytes, over),
                   p->device_is_short ? "device" : "host");
    return out;
}

/* ---- planning -------------------------------------------------------------------------------- */

static void take_forecast(struct point *p, const struct snug_run *run)
{
    struct snug_forecast f;
    snug_run_forecast(run, &f);
    p->fits = f.fits;
    p->device_is_short = strcmp(f.binding, "device") == 0;
    p->kind = kind_of(&f);
    describe(&f, p->text, sizeof(p->text));
    (void)snprintf(p->precision, sizeof(p->precision), "%s", f.precision);
    if (!f.host_budget_given)
        (void)snprintf(p->host_whose, sizeof(p->host_whose), "%s", f.host_room.whose);
    p->tokens_per_s = f.tokens_per_s;
    p->step_s = f.step_s;
    p->device_needs = f.device_needs;
    p->device_budget = f.device_budget;
    p->host_needs = f.host_needs;
    p->host_budget = f.host_budget;
}

static enum snug_status plan_config(struct point *p, struct cli *cli, const char *gpu,
                                    const struct snug_config *config)
{
    struct snug_settings settings = cli->settings;
    struct snug_run *run;
    settings.gpu = gpu;
    enum snug_status status = snug_run_open(&run, config, &settings, SNUG_TRAIN);
    if (status != SNUG_OK)
        return status;
    take_forecast(p, run);
    snug_run_close(run);
    return SNUG_OK;
}

void point_plan(struct point *p, struct cli *cli, const char *gpu, const char *override)
{
    const struct args *a = &cli->args;
    struct snug_config *config = NULL;
    enum log_level level = log_get_level();
    size_t n = a->overrides.n;
    const char **overrides = mem_calloc(n + 1, sizeof(*overrides));
    *p = (struct point){.status = overrides ? SNUG_OK : memory_error()};
    for (size_t i = 0; i < n && overrides; i++)
        overrides[i] = a->overrides.items[i];
    if (overrides && override)
        overrides[n++] = override;
    log_set_level(MIN(level, LOG_WARN)); /* what a plan remarks is in its row */
    if (overrides)
        p->status = snug_config_load(&config, a->words.items[0], overrides, n);
    if (p->status == SNUG_OK)
        p->status = plan_config(p, cli, gpu, config);
    log_set_level(level);
    if (p->status != SNUG_OK)
        (void)snprintf(p->message, sizeof(p->message), "%s", snug_error_message());
    snug_config_free(config);
    mem_free(overrides);
}

json_t *point_json(const struct point *p)
{
    if (p->status != SNUG_OK)
        return json_pack("{s:s}", "error", p->message);
    json_t *o =
        json_pack("{s:b, s:s, s:s, s:s, s:f, s:f, s:I, s:I}", "fits", p->fits, "kind",
                  point_kind_name(p->kind), "plan", p->text, "precision", p->precision,
                  "tokens_per_s", p->tokens_per_s, "step_ms", 1e3 * p->step_s, "device_bytes",
                  (json_int_t)p->device_needs, "host_bytes", (json_int_t)p->host_needs);
    if (o && p->device_budget != SNUG_NO_BUDGET)
        (void)json_object_set_new(o, "device_memory", json_integer(p->device_budget));
    if (o && p->host_budget != SNUG_NO_BUDGET)
        (void)json_object_set_new(o, "host_memory", json_integer(p->host_budget));
    return o;
}

void show_host_of(const struct point *p)
{
    char host[BYTES_TEXT];
    if (p->status == SNUG_OK && *p->host_whose)
        show_line(4, "host memory is what %s has free, %s; host_memory=64GiB plans for another",
                  p->host_whose, format_bytes(host, p->host_budget));
}
