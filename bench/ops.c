/* ops.c: how long the CPU's kernel of any op takes on a sample.
 *
 *     bench_ops THREADS SECONDS 'max_pool f32[2,220,320,32] {kernel=[2,2], stride=[2,2]}' ...
 *
 * Samples are written as in the ops' own (graph/sample.h). A line for each: the kernel, the best
 * time of a call in milliseconds, gigabytes a second (each input read once, each output written
 * once). With one thread the times are of its processor, which other programs disturb least.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/machine.h"
#include "base/pool.h"
#include "base/rng.h"
#include "device/cpu/cpu_kernels.h"
#include "graph/sample.h"

enum { MAX_OUT = 8, MOST_RUNS = 500, ALIGNMENT = 64 };

struct bench {
    struct pool pool;
    struct kernel_ctx x;
    double seconds;
};

static enum status memory(struct bench *b, int64_t n_bytes, void **to)
{
    char *p;
    TRY(pool_try(&b->pool, &p, (size_t)n_bytes + ALIGNMENT));
    *to = p + (ALIGNMENT - (uintptr_t)p % ALIGNMENT);
    return OK;
}

static void fill(const struct sample_input *s, const struct tensor *t)
{
    for (int64_t i = 0; i < shape_elems(&t->shape); i++) {
        float u = rng_uniform(philox(1, 0, (uint64_t)i).v[0]);
        float x = s->fill == FILL_POSITIVE ? u + 0.5f : u - 0.5f;
        if (dtype_is_float(t->dtype))
            cpu_store_f32(t->data, t->dtype, i, &x, 1);
        else if (t->dtype == DTYPE_U8)
            ((uint8_t *)t->data)[i] = (uint8_t)(u * (float)s->high);
    }
}

static double seconds_of(const struct bench *b)
{
    struct timespec t;
    if (b->x.env.n_threads > 1)
        return now_s();
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static enum status time_call(struct bench *b, const struct op_call *c)
{
    const char *why = NULL;
    const struct kernel *k = kernel_pick(cpu_kernels(c->op), c, &b->x.env, &why);
    int64_t n_bytes = k->workspace ? k->workspace(c, &b->x.env) : 0;
    double total = 0.0, best = 1e30;
    TRY(memory(b, n_bytes, &b->x.workspace));
    TRY(k->run(&b->x, c));
    for (int i = 0; i < MOST_RUNS && (i < 3 || total < b->seconds); i++) {
        double start = seconds_of(b);
        TRY(k->run(&b->x, c));
        double t = seconds_of(b) - start;
        total += t;
        best = MIN(best, t);
    }
    printf("%-10s %9.3f ms %7.2f GB/s  ", k->name, 1e3 * best, call_bytes(c) / best * 1e-9);
    return OK;
}

static enum status run_sample(struct bench *b, const char *text)
{
    char name[64];
    enum op_id op;
    struct sample s;
    struct tensor in[SAMPLE_MAX_INPUTS] = {0}, out[MAX_OUT] = {0};
    if (sscanf(text, "%63s", name) != 1 || !op_find(name, &op))
        return FAIL(ERR_DATA, "no op: %s", text);
    TRY(sample_parse(&s, op_get(op), text + strlen(name)));
    struct op_call c = {.op = op,
                        .n_in = s.n_in,
                        .n_out = op_get(op)->n_out,
                        .in = in,
                        .out = out,
                        .attrs = s.attrs};
    for (int i = 0; i < s.n_in; i++)
        in[i] = (struct tensor){.dtype = s.in[i].dtype, .shape = s.in[i].shape};
    TRY(op_get(op)->infer(&c));
    for (int i = 0; i < c.n_in; i++) {
        if (!tensor_present(&in[i]))
            continue;
        TRY(memory(b, tensor_bytes(&in[i]), &in[i].data));
        fill(&s.in[i], &in[i]);
    }
    for (int i = 0; i < c.n_out; i++)
        TRY(memory(b, tensor_bytes(&out[i]), &out[i].data));
    TRY(time_call(b, &c));
    printf("%s\n", text);
    pool_release(&b->pool);
    pool_init(&b->pool);
    return OK;
}

int main(int argc, char **argv)
{
    struct bench b = {.seconds = argc > 2 ? atof(argv[2]) : 0.0};
    struct team *team = NULL;
    if (argc < 4) {
        fprintf(stderr, "usage: bench_ops THREADS SECONDS 'OP SAMPLE' ...\n");
        return 2;
    }
    pool_init(&b.pool);
    b.x.env.n_threads = atoi(argv[1]);
    enum status status = team_new(&team, b.x.env.n_threads);
    b.x.env.team = team;
    for (int i = 3; i < argc && status == OK; i++)
        status = run_sample(&b, argv[i]);
    if (status != OK)
        fprintf(stderr, "bench_ops: %s\n", status_message());
    pool_release(&b.pool);
    team_free(team);
    return status_exit_code(status);
}
