/* grouped.c: the rate of a mixture's grouped products beside the dense product of the same FLOPs.
 *
 *     bench_grouped [SHAPE] [device=cpu|cuda] [tokens=N] [gradients=f32] [search=true] [json=FILE]
 *
 * SHAPE: only the layers whose name contains it. Each layer has two products (gate and up packed,
 * down), each of them three ops: fwd, dx (gradient of the input), dw (of the weights: bf16, or f32
 * when asked). A token goes to so many different experts, drawn evenly, so that groups differ in
 * size as they do in training. The dense side is `linear` and its gradients over as many rows and
 * one expert's weights, by the kernel training takes (cuBLASLt on a GPU; search=true: its fastest
 * algorithm, timed). Both sides are timed by turns; the median of the turns counts. The sum of a
 * layer stands for a stack of them: every layer is the same.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "base/file.h"
#include "base/json.h"
#include "base/json_text.h"
#include "base/rng.h"
#include "base/str.h"
#include "device/device.h"
#include "graph/sample.h"

enum { MOST_COPIES = 32, MOST_GROUPS = 1024, TURNS = 3, TEXT = 256 };

static const int64_t rotation_bytes = (int64_t)512 << 20; /* ten times the L2 of an H200 */

struct layer {
    const char *name;
    int64_t n_tokens, n_experts, n_used; /* experts of a token */
    int64_t hidden, inner;
};

static const struct layer layers[] = {
    {"qwen3-30b-a3b", 16384, 128, 8, 2048, 768},
    {"mixtral-8x7b", 8192, 8, 2, 4096, 14336},
    {"tiny", 512, 8, 2, 64, 48}, /* to see the program run where there is no GPU */
};

/* A matrix [n_out, n_in] of every expert. */
struct product {
    const char *name;
    int64_t n_rows, n_experts, n_in, n_out;
};

enum pass { FWD, DX, DW, PASSES };
static const char *const pass_names[PASSES] = {"fwd", "dx", "dw"};
enum side { GROUPED, DENSE, SIDES };
static const char *const op_names[SIDES][PASSES] = {
    {"grouped_linear", "grouped_linear_grad_input", "grouped_linear_grad_weight"},
    {"linear", "linear_grad_input", "linear_grad_weight"},
};

struct options {
    const char *only, *json;
    int64_t n_tokens; /* 0: the shape's own */
    bool cpu, search;
    enum dtype gradients; /* of weights */
};

struct bench {
    struct device d;
    const struct options *options;
    struct memory arena, host;
    int64_t n_taken; /* bytes of the arena */
    int32_t offsets[MOST_GROUPS + 1];
    json_t *results;
};

/* One op over several pieces of memory. */
struct job {
    const struct kernel *kernel;
    int n;
    struct sample sample;
    struct op_call calls[MOST_COPIES];
    struct kernel_ctx contexts[MOST_COPIES];
    struct tensor in[MOST_COPIES][SAMPLE_MAX_INPUTS], out[MOST_COPIES][1];
};

/* ---- routing --------------------------------------------------------------------------------- */

/* Where each expert's rows begin when every token draws n_used different experts. */
static void draw_offsets(struct bench *b, const struct layer *l)
{
    int32_t count[MOST_GROUPS] = {0};
    for (int64_t t = 0; t < l->n_tokens; t++) {
        int64_t drawn[MOST_GROUPS] = {0};
        int64_t n = 0;
        for (uint64_t draw = 0; n < l->n_used; draw++) {
            int64_t e = philox(1, (uint64_t)t, draw).v[0] % l->n_experts, i = 0;
            while (i < n && drawn[i] != e)
                i++;
            if (i < n)
                continue;
            drawn[n++] = e;
            count[e]++;
        }
    }
    for (int64_t e = 0; e < l->n_experts; e++)
        b->offsets[e + 1] = b->offsets[e] + count[e];
}

/* ---- calls ----------------------------------------------------------------------------------- */

static void sample_text(char out[TEXT], const struct product *p, enum side side, enum pass pass,
                        enum dtype gradients)
{
    char weights[TEXT / 2], offsets[TEXT / 4] = "";
    long long rows = p->n_rows, n_in = p->n_in, n_out = p->n_out, n_experts = p->n_experts;
    if (side == GROUPED) {
        (void)snprintf(weights, sizeof(weights), "bf16[%lld,%lld,%lld]", n_experts, n_out, n_in);
        (void)snprintf(offsets, sizeof(offsets), ", i32[%lld]", n_experts + 1);
    } else {
        (void)snprintf(weights, sizeof(weights), "bf16[%lld,%lld]", n_out, n_in);
    }
    if (pass == DW)
        (void)snprintf(out, TEXT, "bf16[%lld,%lld], bf16[%lld,%lld]%s {dtype=%s}", rows, n_out,
                       rows, n_in, offsets, dtype_name(gradients));
    else
        (void)snprintf(out, TEXT, "bf16[%lld,%lld], %s%s", rows, pass == FWD ? n_in : n_out,
                       weights, offsets);
}

static int64_t call_room(const struct op_call *c)
{
    int64_t n = align_up(tensor_bytes(&c->out[0]), ARENA_ALIGN);
    for (int i = 0; i < c->n_in; i++)
        n += align_up(tensor_bytes(&c->in[i]), ARENA_ALIGN);
    return n;
}

/* Copy 0 without memory, its kernel, and how many copies there are to be. */
static enum status bind(struct bench *b, struct job *j, const char *op_name, const char *text)
{
    enum op_id op;
    const char *why = NULL;
    if (!op_find(op_name, &op))
        return FAIL(ERR_INTERNAL, "there is no op named %s", op_name);
    TRY(sample_parse(&j->sample, op_get(op), text));
    for (int i = 0; i < MOST_COPIES; i++) {
        struct op_call *c = &j->calls[i];
        *c = (struct op_call){.op = op,
                              .n_in = j->sample.n_in,
                              .n_out = 1,
                              .in = j->in[i],
                              .out = j->out[i],
                              .attrs = j->sample.attrs};
        for (int k = 0; k < c->n_in; k++)
            j->in[i][k] = (struct tensor){j->sample.in[k].dtype, j->sample.in[k].shape, NULL};
        TRY(op_get(op)->infer(c));
    }
    j->kernel = kernel_pick(b->d.ops->kernels(op), &j->calls[0], &b->d.env, &why);
    if (!j->kernel)
        return FAIL(ERR_UNSUPPORTED, "%s: %s", op_name, why ? why : "no kernel takes it");
    int64_t n = rotation_bytes / call_room(&j->calls[0]) + 1;
    j->n = (int)MIN(n, (int64_t)MOST_COPIES);
    return OK;
}

static int64_t workspace_of(const struct bench *b, const struct job *j)
{
    return j->kernel->workspace ? j->kernel->workspace(&j->calls[0], &b->d.env) : 0;
}

static void *take(struct bench *b, int64_t n_bytes)
{
    void *p = (char *)b->arena.base + b->n_taken;
    b->n_taken += align_up(n_bytes, ARENA_ALIGN);
    BUG_ON(b->n_taken > b->arena.n_bytes);
    return p;
}

static enum status set_offsets(struct bench *b, const struct tensor *t)
{
    int64_t n_bytes = tensor_bytes(t);
    struct place to = {&b->arena, (char *)t->data - (char *)b->arena.base};
    memcpy(b->host.base, b->offsets, (size_t)n_bytes);
    TRY(device_copy(&b->d, QUEUE_COMPUTE, to, (struct place){&b->host, 0}, n_bytes));
    return b->d.ops->sync(&b->d);
}

static enum status place(struct bench *b, struct job *j)
{
    for (int i = 0; i < j->n; i++) {
        struct op_call *c = &j->calls[i];
        for (int k = 0; k < c->n_in; k++) {
            struct tensor *t = &j->in[i][k];
            t->data = take(b, tensor_bytes(t));
            if (t->dtype == DTYPE_I32)
                TRY(set_offsets(b, t));
            else
                TRY(b->d.ops->fill(&b->d, t, (struct index_rule){0}));
        }
        j->out[i][0].data = take(b, tensor_bytes(&j->out[i][0]));
        j->contexts[i] = (struct kernel_ctx){.env = b->d.env};
    }
    void *workspace = take(b, workspace_of(b, j)); /* one for all: they run one after the other */
    for (int i = 0; i < j->n; i++)
        j->contexts[i].workspace = workspace;
    return b->d.ops->sync(&b->d);
}

static enum status new_arena(struct bench *b, int64_t n_bytes)
{
    b->n_taken = 0;
    if (b->arena.n_bytes >= n_bytes)
        return OK;
    if (b->arena.base)
        b->d.ops->memory_free(&b->d, TIER_DEVICE, b->arena.base, b->arena.n_bytes);
    b->arena = (struct memory){.tier = TIER_DEVICE};
    TRY(b->d.ops->memory_alloc(&b->d, TIER_DEVICE, n_bytes, &b->arena.base));
    b->arena.n_bytes = n_bytes;
    return OK;
}

/* ---- times ----------------------------------------------------------------------------------- */

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static enum status time_sides(struct bench *b, struct job jobs[SIDES], double seconds[SIDES])
{
    double turns[SIDES][TURNS];
    for (int turn = 0; turn < TURNS; turn++) {
        for (int s = 0; s < SIDES; s++) {
            const struct job *j = &jobs[s];
            const struct timed_calls t = {
                .kernel = j->kernel, .contexts = j->contexts, .calls = j->calls, .n = j->n};
            struct call_time timing;
            TRY(b->d.ops->time_calls(&b->d, &t, &timing));
            turns[s][turn] = timing.seconds;
        }
    }
    for (int s = 0; s < SIDES; s++) {
        qsort(turns[s], TURNS, sizeof(turns[s][0]), by_size);
        seconds[s] = turns[s][TURNS / 2];
    }
    return OK;
}

/* Operations of a pass and what they took, by side. */
struct rate {
    double flops, seconds[SIDES];
};

static json_t *rate_json(const struct rate *r)
{
    return json_pack("{s:f, s:f, s:f, s:f, s:f, s:f}", "gflop", r->flops * 1e-9, "grouped_ms",
                     r->seconds[GROUPED] * 1e3, "dense_ms", r->seconds[DENSE] * 1e3,
                     "grouped_tflops", r->flops / r->seconds[GROUPED] * 1e-12, "dense_tflops",
                     r->flops / r->seconds[DENSE] * 1e-12, "ratio",
                     r->seconds[DENSE] / r->seconds[GROUPED]);
}

static void print_rate(const char *product, const char *pass, const struct rate *r,
                       const char *kernels)
{
    printf("  %-8s %-5s %9.3f ms %7.1f TFLOP/s  dense %9.3f ms %7.1f TFLOP/s  ratio %.3f%s\n",
           product, pass, r->seconds[GROUPED] * 1e3, r->flops / r->seconds[GROUPED] * 1e-12,
           r->seconds[DENSE] * 1e3, r->flops / r->seconds[DENSE] * 1e-12,
           r->seconds[DENSE] / r->seconds[GROUPED], kernels);
    (void)fflush(stdout);
}

static enum status time_pass(struct bench *b, const struct product *p, enum pass pass,
                             struct rate *r)
{
    static struct job jobs[SIDES]; /* too much for a stack */
    int64_t n_bytes = 0;
    for (int s = 0; s < SIDES; s++) {
        char text[TEXT];
        sample_text(text, p, (enum side)s, pass, b->options->gradients);
        TRY(bind(b, &jobs[s], op_names[s][pass], text));
        n_bytes += jobs[s].n * call_room(&jobs[s].calls[0]) +
                   align_up(workspace_of(b, &jobs[s]), ARENA_ALIGN);
    }
    TRY(new_arena(b, n_bytes));
    for (int s = 0; s < SIDES; s++)
        TRY(place(b, &jobs[s]));
    r->flops = call_flops(&jobs[GROUPED].calls[0]);
    BUG_ON(r->flops != call_flops(&jobs[DENSE].calls[0]));
    TRY(time_sides(b, jobs, r->seconds));
    char kernels[TEXT];
    (void)snprintf(kernels, sizeof(kernels), "  (%s, %s)", jobs[GROUPED].kernel->name,
                   jobs[DENSE].kernel->name);
    print_rate(p->name, pass_names[pass], r, kernels);
    return OK;
}

static enum status add_json(json_t *to, const char *key, json_t *value)
{
    return json_object_set_new(to, key, value) == 0 ? OK : FAIL(ERR_MEMORY, "out of memory");
}

static enum status time_product(struct bench *b, const struct product *p, struct rate *sum,
                                json_t *to)
{
    json_t *mine = json_object();
    TRY(add_json(to, p->name, mine));
    for (int pass = 0; pass < PASSES; pass++) {
        struct rate r;
        TRY(time_pass(b, p, (enum pass)pass, &r));
        sum->flops += r.flops;
        for (int s = 0; s < SIDES; s++)
            sum->seconds[s] += r.seconds[s];
        TRY(add_json(mine, pass_names[pass], rate_json(&r)));
    }
    return OK;
}

static enum status time_layer(struct bench *b, struct layer l)
{
    l.n_tokens = b->options->n_tokens > 0 ? b->options->n_tokens : l.n_tokens;
    int64_t rows = l.n_tokens * l.n_used;
    const struct product products[] = {
        {"gate_up", rows, l.n_experts, l.hidden, 2 * l.inner},
        {"down", rows, l.n_experts, l.inner, l.hidden},
    };
    struct rate sum = {0};
    json_t *mine =
        json_pack("{s:I, s:I, s:I, s:I, s:I}", "tokens", (json_int_t)l.n_tokens, "experts",
                  (json_int_t)l.n_experts, "experts_per_token", (json_int_t)l.n_used, "hidden",
                  (json_int_t)l.hidden, "intermediate", (json_int_t)l.inner);
    TRY(add_json(b->results, l.name, mine));
    printf("%s: %lld tokens to %lld of %lld experts, hidden %lld, intermediate %lld\n", l.name,
           (long long)l.n_tokens, (long long)l.n_used, (long long)l.n_experts, (long long)l.hidden,
           (long long)l.inner);
    draw_offsets(b, &l);
    for (size_t i = 0; i < ARRAY_LEN(products); i++)
        TRY(time_product(b, &products[i], &sum, mine));
    print_rate("layer", "all", &sum, "");
    return add_json(mine, "layer", rate_json(&sum));
}

/* ---- all of it ------------------------------------------------------------------------------- */

static enum status write_json(struct bench *b)
{
    struct str text = {0};
    enum status status = OK;
    json_t *all = json_pack("{s:s, s:s, s:b, s:O}", "device", b->d.description, "gradients",
                            dtype_name(b->options->gradients), "search", b->options->search,
                            "layers", b->results);
    TRY_GOTO(json_text_take(all, JSON_INDENT(1) | JSON_REAL_PRECISION(6), &text), out);
    str_add(&text, "\n");
    TRY_GOTO(str_status(&text), out);
    TRY_GOTO(file_write_atomic(b->options->json, text.text, text.n), out);
out:
    str_release(&text);
    return status;
}

static enum status run(struct bench *b)
{
    if (b->options->search) {
        const struct device_tuning tuning = {.search = true};
        if (!b->d.ops->tune)
            return FAIL(ERR_UNSUPPORTED, "search=true: this device has nothing to search among");
        TRY(b->d.ops->tune(&b->d, &tuning));
    }
    b->host = (struct memory){.tier = TIER_HOST, .n_bytes = (int64_t)sizeof(b->offsets)};
    TRY(b->d.ops->memory_alloc(&b->d, TIER_HOST, b->host.n_bytes, &b->host.base));
    b->results = json_object();
    printf("%s\n", b->d.description);
    for (size_t i = 0; i < ARRAY_LEN(layers); i++) {
        bool chosen = *b->options->only ? strstr(layers[i].name, b->options->only) != NULL
                                        : strcmp(layers[i].name, "tiny") != 0;
        if (chosen)
            TRY(time_layer(b, layers[i]));
    }
    return b->options->json ? write_json(b) : OK;
}

static enum status read_options(struct options *o, int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        const char *a = argv[i];
        if (strcmp(a, "device=cpu") == 0 || strcmp(a, "device=cuda") == 0)
            o->cpu = strcmp(a, "device=cpu") == 0;
        else if (strcmp(a, "gradients=f32") == 0 || strcmp(a, "gradients=bf16") == 0)
            o->gradients = strcmp(a, "gradients=f32") == 0 ? DTYPE_F32 : DTYPE_BF16;
        else if (strcmp(a, "search=true") == 0)
            o->search = true;
        else if (str_starts_with(a, "json="))
            o->json = a + strlen("json=");
        else if (str_starts_with(a, "tokens=") && parse_int(a + strlen("tokens="), &o->n_tokens) &&
                 o->n_tokens > 0)
            continue;
        else if (!strchr(a, '=') && a[0] != '-')
            o->only = a;
        else
            return FAIL(ERR_USAGE,
                        "%s: not an option; there are SHAPE, device=cpu|cuda, tokens=N, "
                        "gradients=bf16|f32, search=true, json=FILE",
                        a);
    }
    return OK;
}

int main(int argc, char **argv)
{
    static struct bench b; /* too much for a stack */
    struct options o = {.only = "", .gradients = DTYPE_BF16};
    enum status status = read_options(&o, argc, argv);
    b.options = &o;
    if (status == OK)
        status = o.cpu ? device_open_cpu(&b.d, 0) : device_open_cuda(&b.d, 0);
    if (status == OK)
        status = run(&b);
    if (status != OK)
        (void)fprintf(stderr, "bench_grouped: %s\n", status_message());
    json_decref(b.results);
    if (b.arena.base)
        b.d.ops->memory_free(&b.d, TIER_DEVICE, b.arena.base, b.arena.n_bytes);
    if (b.host.base)
        b.d.ops->memory_free(&b.d, TIER_HOST, b.host.base, b.host.n_bytes);
    device_close(&b.d);
    return status_exit_code(status);
}
