/* profile.c: where the time of a training step goes, op by op, without data or checkpoints.
 *
 *     bench_profile CONFIG [key=value...]     e.g.  bench_profile configs/gpt2-124m.yaml bf16=true
 *
 * Runs a few steps of the config on random tokens, times every instruction of the last ones
 * (PROFILE_STEPS of them, default 4) and prints the table that `snug train --profile` prints.
 * PROFILE_TRACE=FILE also writes the trace.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/machine.h"
#include "random_batch.h"
#include "train/profile.h"

static enum status run_steps(struct session *s, struct profile *p, int64_t n_steps)
{
    for (int64_t i = 1; i <= n_steps; i++) {
        int32_t *step = engine_input(&s->engine, s->train, "step");
        if (step) /* with loss scaling the program counts by itself */
            *step = (int32_t)i;
        double start = now_s();
        profile_step_begin(p, i);
        TRY(engine_run(&s->engine, s->train, "step"));
        TRY(profile_step_end(p, i, now_s() - start));
    }
    return OK;
}

static enum status profile(struct session *s)
{
    const char *wanted = getenv("PROFILE_STEPS");
    struct profile_options o = {.path = getenv("PROFILE_TRACE"),
                                .n_steps = wanted ? atoi(wanted) : 4}; // NOLINT(cert-err34-c)
    int64_t n_steps = PROFILE_FIRST_STEP + o.n_steps - 1;
    struct profile p = {0};
    struct str text = {0};
    enum status status;
    TRY_GOTO(session_start(s), out);
    fill_random_batch(s, s->train);
    TRY_GOTO(profile_init(&p, s, &o, n_steps), out);
    TRY_GOTO(run_steps(s, &p, n_steps), out);
    profile_table(&p, &text);
    (void)printf("%s", str_text(&text));
out:
    profile_release(&p);
    str_release(&text);
    return status;
}

int main(int argc, char **argv)
{
    struct config *cfg = NULL;
    struct session s = {0};
    enum status status =
        argc < 2 ? FAIL(ERR_USAGE, "usage: bench_profile CONFIG [key=value...]")
                 : config_load(&cfg, argv[1], (const char *const *)argv + 2, (size_t)argc - 2);
    if (status == OK)
        status = config_resolve(cfg, 1);
    if (status == OK)
        status = session_open(&s, cfg, &(struct session_options){.train = true});
    if (status == OK) {
        status = profile(&s);
        session_close(&s);
    }
    config_free(cfg);
    if (status != OK)
        (void)fprintf(stderr, "error: %s\n", status_message());
    return status_exit_code(status);
}
