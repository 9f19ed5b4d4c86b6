#include "support/train_session.h"

enum status train_session(struct session *s, const struct train_options *o,
                          struct train_result *result)
{
    struct run_start start;
    *result = (struct train_result){0};
    TRY(run_start_open(&start, s->config));
    enum status status = run_start_confirm(&start, s);
    if (status == OK)
        status = train_run(s, &start, o, result);
    run_start_close(&start);
    return status;
}
