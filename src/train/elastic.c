#include "train/elastic.h"

#include "base/machine.h"

static void set_limit(int64_t *limit, int64_t wanted)
{
    if (wanted != BUDGET_SAME)
        *limit = wanted == BUDGET_OPEN ? LIMIT_OPEN : wanted;
}

static struct limits limits_of(const struct session *s, const struct budget_request *r)
{
    struct limits l = s->engine.settings.limits;
    set_limit(&l.n_bytes[TIER_DEVICE], r->device_bytes);
    set_limit(&l.n_bytes[TIER_HOST], r->host_bytes);
    set_limit(&l.n_bytes[TIER_DISK], r->disk_bytes);
    return l;
}

static void describe(const struct session *s, double seconds, struct str *out)
{
    const struct forecast *f = &s->engine.forecast;
    char arena[BYTES_TEXT], host[BYTES_TEXT], step[BYTES_TEXT], time[BYTES_TEXT];
    str_addf(out, "arena %s, %s on the host, %s per step planned; changed over in %s",
             format_bytes(arena, f->arena_bytes), format_bytes(host, f->host_bytes),
             format_duration(step, f->step_s), format_duration(time, seconds));
}

enum status elastic_change(struct session *s, const struct budget_request *request,
                           struct str *answer, struct budget_record *r)
{
    const struct limits wanted = limits_of(s, request);
    bool lost;
    double began = now_s();
    enum status status = session_change_limits(s, &wanted, s->config->output_dir, &lost);
    *r = (struct budget_record){.wanted = str_text(&request->text),
                                .changed = status == OK,
                                .forecast = &s->engine.forecast,
                                .seconds = now_s() - began};
    if (lost)
        return status;
    if (status == OK)
        describe(s, r->seconds, answer);
    else
        str_add(answer, status_message());
    TRY(str_status(answer));
    r->text = str_text(answer);
    return OK;
}
