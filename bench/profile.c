/* profile.c: where the time of a training step goes, op by op.
 *
 *     bench_profile CONFIG [key=value...]        e.g.  bench_profile configs/gpt2-124m.yaml
 * bf16=true
 *
 * Runs a few steps of the config on random tokens (PROFILE_STEPS, default 4), times every
 * instruction of the last ones by waiting for it, and prints per op: how often, milliseconds per
 * step, rates, and the share of the limit set by the device's measured rates. Waiting costs a few
 * microseconds an instruction, so the sum is above the time of a whole step, which is printed too.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/rng.h"
#include "train/session.h"

struct total {
    double seconds, flops, bytes, limit;
    int n;
};

static double now_s(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void fill_inputs(struct session *s)
{
    int h = s->train_program;
    int64_t n = s->config->per_device_train_batch_size * s->config->max_seq_length;
    int32_t *tokens = executor_input(s->executor, h, "tokens");
    int32_t *targets = executor_input(s->executor, h, "targets");
    struct rng r = {.key = 1};
    for (int64_t i = 0; i < n; i++) {
        tokens[i] = (int32_t)rng_below(&r, (uint64_t)s->model->vocab_size);
        targets[i] = (int32_t)rng_below(&r, (uint64_t)s->model->vocab_size);
    }
    *(float *)executor_input(s->executor, h, LOSS_SEED) = 1.0f / (float)n;
    *(float *)executor_input(s->executor, h, "lr") = 1e-4f;
}

static enum status run_steps(struct session *s, int n_steps, double *seconds)
{
    for (int i = 0; i < n_steps; i++) {
        *(int32_t *)executor_input(s->executor, s->train_program, "step") = i + 1;
        double start = now_s();
        TRY(executor_run(s->executor, s->train_program, "step"));
        *seconds = now_s() - start;
    }
    return OK;
}

static void add_up(const struct session *s, const double *seconds, int n_steps, struct total *by_op)
{
    const struct program *p = s->pipeline.train.program;
    for (size_t k = 0; k < p->instrs.n; k++) {
        const struct instr *i = &p->instrs.items[k];
        if (i->kind != INSTR_COMPUTE)
            continue;
        const struct node *n = graph_node(p->graph, i->node);
        struct program_cost cost;
        program_cost(p, (int32_t)k, 1, &s->device, &cost);
        struct total *t = &by_op[n->op];
        t->seconds += seconds[k] / n_steps;
        t->flops += cost.flops;
        t->bytes += cost.bytes;
        t->limit += cost.time_s;
        t->n++;
    }
}

static void print(struct total *by_op)
{
    (void)printf("%-28s %5s %9s %6s %9s %8s %7s\n", "op", "calls", "ms/step", "share", "GFLOP/s",
                 "GB/s", "limit");
    double sum = 0;
    for (int i = 0; i < OP_COUNT; i++)
        sum += by_op[i].seconds;
    for (;;) {
        int top = 0;
        for (int i = 1; i < OP_COUNT; i++)
            top = by_op[i].seconds > by_op[top].seconds ? i : top;
        struct total *t = &by_op[top];
        if (t->seconds <= 0)
            break;
        (void)printf("%-28s %5d %9.3f %5.1f%% %9.0f %8.0f %6.0f%%\n", op_get((enum op_id)top)->name,
                     t->n, t->seconds * 1e3, 100 * t->seconds / sum, t->flops / t->seconds / 1e9,
                     t->bytes / t->seconds / 1e9, 100 * t->limit / t->seconds);
        t->seconds = 0;
    }
    (void)printf("%-28s       %9.3f\n", "sum", sum * 1e3);
}

static enum status profile(struct session *s)
{
    const char *wanted = getenv("PROFILE_STEPS");
    int n_steps = wanted ? atoi(wanted) : 4; // NOLINT(cert-err34-c)
    double whole, last, *seconds;
    struct total by_op[OP_COUNT] = {{0}};
    TRY(session_start(s));
    fill_inputs(s);
    TRY(run_steps(s, n_steps, &whole)); /* warm, and recorded where the device can */
    TRY(mem_try_array(&seconds, s->pipeline.train.program->instrs.n, sizeof(*seconds)));
    executor_time_into(s->executor, s->train_program, seconds);
    enum status status = run_steps(s, n_steps, &last);
    add_up(s, seconds, n_steps, by_op);
    mem_free(seconds);
    print(by_op);
    (void)printf("whole step %.3f ms, predicted %.3f ms\n", whole * 1e3,
                 s->pipeline.forecast.step_s * 1e3);
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
