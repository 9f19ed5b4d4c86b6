/* budget.c: other budgets for a run that another process has at work. */
#include "api/api_internal.h"
#include "io/budget_request.h"

enum snug_status snug_budget(const char *output_dir, const char *const *settings, size_t n_settings,
                             volatile sig_atomic_t *stop, char **answer)
{
    struct budget_request r;
    struct str text = {0};
    enum status status = n_settings ? OK : FAIL(ERR_USAGE, "which budget? give device_memory=9GiB");
    budget_request_init(&r);
    for (size_t i = 0; i < n_settings && status == OK; i++)
        status = budget_request_set(&r, settings[i]);
    if (status == OK)
        status = budget_request_ask(output_dir, &r, stop, &text);
    *answer = status == OK ? str_take(&text) : NULL;
    str_release(&text);
    budget_request_release(&r);
    return public_status(status);
}
