/* conv.c: how long the CPU's convolution kernels take, forward and both gradients.
 *
 *     bench_conv THREADS SECONDS x=8,56,56,64 w=128,3,3,64 [stride=1,1] [pad=1,1] [groups=1] ...
 *
 * Shapes are as in the graph: activations [N, D.., C], weights [O, K.., C / groups]. A case begins
 * with its x. Prints a line for each case: the best times of conv, conv_grad_input and
 * conv_grad_weight in milliseconds, and how much workspace they declare in MiB. With one thread the
 * times are of its processor, which other programs disturb least. bench/conv.py runs it beside
 * PyTorch.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "base/machine.h"
#include "base/rng.h"
#include "device/cpu/cpu_kernels.h"
#include "ops/window_support.h"

enum { MOST_RUNS = 200 };

struct setup {
    struct shape x, w;
    struct attr attrs[CONV_DTYPE + 1];
    int n_threads;
    double seconds;
};

static int numbers(const char *text, int64_t *out)
{
    int n = 0;
    for (char *end; n < MAX_RANK; text = end + 1) {
        out[n++] = strtoll(text, &end, 10);
        if (*end != ',')
            break;
    }
    return n;
}

static enum status fill(struct tensor *t, uint64_t key)
{
    float *x;
    TRY(mem_try_array(&x, (size_t)shape_elems(&t->shape), sizeof(float)));
    for (int64_t i = 0; i < shape_elems(&t->shape); i++)
        x[i] = rng_uniform(philox(key, 0, (uint64_t)i).v[0]) - 0.5f;
    t->data = x;
    return OK;
}

/* Seconds so far: of the processor where one thread works, else by the clock. */
static double seconds_of(const struct setup *s)
{
    struct timespec t;
    if (s->n_threads > 1)
        return now_s();
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Runs the call for about the time given; the best of its times. */
static enum status time_call(const struct setup *s, struct op_call *c, struct team *team,
                             double *best_ms, double *workspace_mib)
{
    struct kernel_ctx x = {.env = {.n_threads = s->n_threads, .team = team}};
    const char *why = NULL;
    char *memory;
    const struct kernel *k = kernel_pick(cpu_kernels(c->op), c, &x.env, &why);
    int64_t n_bytes = k->workspace ? k->workspace(c, &x.env) : 0;
    TRY(mem_try_array(&memory, (size_t)n_bytes + 64, 1));
    x.workspace = memory + (64 - (uintptr_t)memory % 64);
    double total = 0.0;
    *best_ms = 1e30;
    *workspace_mib = (double)n_bytes / 1048576.0;
    enum status status = k->run(&x, c);
    for (int i = 0; i < MOST_RUNS && status == OK && (i < 3 || total < s->seconds); i++) {
        double start = seconds_of(s);
        status = k->run(&x, c);
        double t = seconds_of(s) - start;
        total += t;
        *best_ms = MIN(*best_ms, t * 1e3);
    }
    mem_free(memory);
    return status;
}

/* The op on two operands, its output newly made. */
static enum status run_op(const struct setup *s, enum op_id op, const struct tensor *a,
                          const struct tensor *b, struct tensor *out, struct team *team)
{
    struct tensor in[2] = {*a, *b};
    struct op_call c = {.op = op, .n_in = 2, .n_out = 1, .in = in, .out = out};
    struct attr attrs[CONV_DTYPE + 1];
    double ms, mib;
    memcpy(attrs, s->attrs, sizeof(attrs));
    const struct shape *own = op == OP_conv_grad_input ? &s->x : &s->w;
    attrs[CONV_SIZE].n_ints = own->rank - 2;
    memcpy(attrs[CONV_SIZE].ints, own->dim + 1, sizeof(int64_t) * (size_t)(own->rank - 2));
    c.attrs = attrs;
    TRY(op_get(op)->infer(&c));
    TRY(fill(out, 3));
    TRY(time_call(s, &c, team, &ms, &mib));
    printf("%9.3f ms %6.2f MiB ", ms, mib);
    return OK;
}

static enum status run_case(const struct setup *s, struct team *team)
{
    struct tensor x = {.dtype = DTYPE_F32, .shape = s->x}, w = {.dtype = DTYPE_F32, .shape = s->w};
    struct tensor y = {0}, dx = {0}, dw = {0};
    enum status status = OK;
    TRY_GOTO(fill(&x, 1), out);
    TRY_GOTO(fill(&w, 2), out);
    TRY_GOTO(run_op(s, OP_conv, &x, &w, &y, team), out);
    TRY_GOTO(run_op(s, OP_conv_grad_input, &y, &w, &dx, team), out);
    TRY_GOTO(run_op(s, OP_conv_grad_weight, &x, &y, &dw, team), out);
    printf("\n");
out:
    mem_free(x.data);
    mem_free(w.data);
    mem_free(y.data);
    mem_free(dx.data);
    mem_free(dw.data);
    return status;
}

static void set_axes(struct attr *a, const char *text)
{
    a->n_ints = numbers(text, a->ints);
}

static void set_shape(struct shape *s, const char *text)
{
    s->rank = numbers(text, s->dim);
}

static void read_setting(struct setup *s, const char *text)
{
    const char *value = strchr(text, '=') ? strchr(text, '=') + 1 : "";
    if (strncmp(text, "x=", 2) == 0)
        set_shape(&s->x, value);
    else if (strncmp(text, "w=", 2) == 0)
        set_shape(&s->w, value);
    else if (strncmp(text, "stride=", 7) == 0)
        set_axes(&s->attrs[WINDOW_STRIDE], value);
    else if (strncmp(text, "pad=", 4) == 0) {
        set_axes(&s->attrs[WINDOW_PAD_BEFORE], value);
        set_axes(&s->attrs[WINDOW_PAD_AFTER], value);
    } else if (strncmp(text, "groups=", 7) == 0)
        s->attrs[CONV_GROUPS].i = strtoll(value, NULL, 10);
}

static enum status run(int argc, char **argv)
{
    struct team *team = NULL;
    struct setup s = {.n_threads = atoi(argv[1]), .seconds = atof(argv[2])};
    enum status status = OK;
    TRY(team_new(&team, s.n_threads));
    for (int i = 3; i < argc && status == OK;) {
        memset(s.attrs, 0, sizeof(s.attrs));
        s.attrs[CONV_GROUPS].i = 1;
        do
            read_setting(&s, argv[i++]);
        while (i < argc && strncmp(argv[i], "x=", 2) != 0);
        status = run_case(&s, team);
    }
    team_free(team);
    return status;
}

int main(int argc, char **argv)
{
    if (argc < 4) {
        fprintf(stderr, "usage: bench_conv THREADS SECONDS x=N,D..,C w=O,K..,C ...\n");
        return 2;
    }
    enum status status = run(argc, argv);
    if (status != OK)
        fprintf(stderr, "bench_conv: %s\n", status_message());
    return status_exit_code(status);
}
