/* page.c: plans as files that other programs show. */
#include "api/api_internal.h"
#include "report/plan_page.h"
#include "report/snapshot.h"

static struct plan_data data_of(const struct snug_run *run)
{
    const struct session *s = &run->session;
    bool measured = s->train && run->trained.times.start;
    return (struct plan_data){.stage = s->train ? s->train : s->eval,
                              .storage = &s->engine.work.storage,
                              .device = s->engine.device,
                              .forecast = &s->engine.forecast,
                              .measured = measured ? &run->trained.times : NULL};
}

enum snug_status snug_run_page(const struct snug_run *run, enum snug_status status, char **text)
{
    struct str page = {0};
    char *forecast = NULL, *decisions = NULL;
    enum snug_status ended = snug_run_json(run, status, &forecast);
    *text = NULL;
    if (ended == SNUG_OK)
        ended = snug_run_decisions(run, &decisions);
    if (ended == SNUG_OK) {
        struct plan_words words = {.forecast = forecast, .decisions = decisions};
        struct plan_data data = data_of(run);
        ended = hand_out(&page, plan_page_print(&data, &words, &page), text);
    }
    snug_free(forecast);
    snug_free(decisions);
    return ended;
}

enum snug_status snug_run_snapshot(const struct snug_run *run, char **bytes, size_t *n_bytes)
{
    struct str file = {0};
    struct plan_data data = data_of(run);
    enum status status = snapshot_print(&data, &file);
    *n_bytes = file.n;
    return hand_out(&file, status, bytes);
}
