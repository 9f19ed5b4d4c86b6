/* page.c: plans as files that other programs show. */
#include "api/api_internal.h"
#include "report/plan_page.h"

static enum status print_page(const struct snug_run *run, const struct plan_words *words,
                              struct str *out)
{
    const struct session *s = &run->session;
    struct plan_data data = {.stage = s->train ? s->train : s->eval,
                             .storage = &s->engine.work.storage,
                             .device = s->engine.device,
                             .forecast = &s->engine.forecast};
    return plan_page_print(&data, words, out);
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
        ended = hand_out(&page, print_page(run, &words, &page), text);
    }
    snug_free(forecast);
    snug_free(decisions);
    return ended;
}
