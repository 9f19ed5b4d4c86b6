/* Checkpoints that have all experts of a projection in one tensor, as transformers 5 holds them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/str.h"
#include "io/weights.h"
#include "support/golden.h"
#include "support/scratch.h"

enum { MOST_PARTS = 64, NAME = 256 };

static const struct model_request request = {
    .purpose = MODEL_SCORE, .batch = 1, .seq_len = 8, .dtype = DTYPE_F32};

/* A golden model whose files have a tensor for each expert, and the names in them. */
struct family {
    const char *golden, *gate, *up, *down;
};
static const struct family families[] = {
    {"mixtral", "w1", "w3", "w2"},
    {"qwen2_moe", "gate_proj", "up_proj", "down_proj"},
    {"qwen3_moe", "gate_proj", "up_proj", "down_proj"},
    {"olmoe", "gate_proj", "up_proj", "down_proj"},
};

/* A tensor of the stacked checkpoint: what of the other lies in it, in order. */
struct stack {
    char name[NAME];
    const struct st_tensor *parts[MOST_PARTS];
    int n_parts, n_experts;
};

struct stacking {
    const struct family *family;
    bool turned; /* experts as [in, out] */
};

/* ---- writing ---- */

/* "model.layers.0.block_sparse_moe.gate.weight" -> "model.layers.0.mlp.gate.weight" */
static void new_name(char out[NAME], const char *name)
{
    static const char old[] = ".block_sparse_moe.";
    const char *at = strstr(name, old);
    if (at)
        (void)snprintf(out, NAME, "%.*s.mlp.%s", (int)(at - name), name, at + strlen(old));
    else
        (void)snprintf(out, NAME, "%s", name);
}

static const struct st_tensor *expert_tensor(const struct st_reader *r, const char *name, int e,
                                             const char *part)
{
    char text[NAME];
    int n_prefix = (int)(strstr(name, ".experts.") - name);
    (void)snprintf(text, sizeof(text), "%.*s.experts.%d.%s.weight", n_prefix, name, e, part);
    return st_reader_find(r, text);
}

/* What tensor t of the one checkpoint begins in the other; false: it is inside of another. */
static bool stack_of(const struct st_reader *r, const struct st_tensor *t, const struct family *f,
                     struct stack *s)
{
    const char *at = strstr(t->name, ".experts.");
    *s = (struct stack){.parts = {t}, .n_parts = 1};
    new_name(s->name, t->name);
    if (!at)
        return true;
    bool is_gate = t == expert_tensor(r, t->name, 0, f->gate);
    if (!is_gate && t != expert_tensor(r, t->name, 0, f->down))
        return false;
    for (s->n_parts = 0; expert_tensor(r, t->name, s->n_experts, f->down); s->n_experts++) {
        assert_true(s->n_parts + 2 <= MOST_PARTS);
        const char *first = is_gate ? f->gate : f->down;
        s->parts[s->n_parts++] = expert_tensor(r, t->name, s->n_experts, first);
        if (is_gate)
            s->parts[s->n_parts++] = expert_tensor(r, t->name, s->n_experts, f->up);
    }
    char *dot = strstr(s->name, ".experts.");
    (void)snprintf(dot, (size_t)(NAME - (dot - s->name)), ".experts.%s",
                   is_gate ? "gate_up_proj" : "down_proj");
    return true;
}

static void declare(struct st_writer *w, const struct stack *s, bool turned)
{
    const struct st_tensor *t = s->parts[0];
    if (s->n_experts == 0) {
        expect_ok(st_writer_add(w, s->name, t->dtype, t->rank, t->dims));
        return;
    }
    int64_t n_out = t->dims[0] * (s->n_parts / s->n_experts), n_in = t->dims[1];
    int64_t dims[] = {s->n_experts, turned ? n_in : n_out, turned ? n_out : n_in};
    expect_ok(st_writer_add(w, s->name, t->dtype, 3, dims));
}

static void write_stacked(const char *from, const char *to, const struct stacking *x)
{
    struct st_reader *r;
    struct st_writer *w;
    struct stack *stacks;
    size_t n = 0;
    expect_ok(st_reader_open_folder(&r, from));
    expect_ok(st_writer_new(&w));
    expect_ok(mem_try_array(&stacks, st_reader_count(r), sizeof(*stacks)));
    for (size_t i = 0; i < st_reader_count(r); i++) {
        if (stack_of(r, st_reader_at(r, i), x->family, &stacks[n]))
            declare(w, &stacks[n++], x->turned);
    }
    assert_true(n < st_reader_count(r)); /* there were experts */
    expect_ok(st_writer_open_folder(w, to, ST_DEFAULT_SHARD_BYTES));
    for (int64_t i; (i = st_writer_next(w)) >= 0;) {
        for (int k = 0; k < stacks[i].n_parts; k++) {
            const struct st_tensor *t = stacks[i].parts[k];
            expect_ok(st_writer_append(w, t->data, (size_t)t->n_bytes));
        }
    }
    expect_ok(st_writer_finish(w, 0));
    mem_free(stacks);
    st_writer_free(w);
    st_reader_close(r);
}

/* ---- reading ---- */

static void expect_same_parameter(const struct weights *a, const struct weights *b, int i,
                                  const struct model_param *p, enum dtype dtype)
{
    struct tensor x = {.dtype = dtype, .shape = p->shape}, y = x;
    size_t n_bytes = (size_t)tensor_bytes(&x);
    x.data = mem_calloc(n_bytes, 1);
    y.data = mem_calloc(n_bytes, 1);
    assert_non_null(x.data);
    assert_non_null(y.data);
    expect_ok(weights_read(a, i, &x, NULL));
    expect_ok(weights_read(b, i, &y, NULL));
    assert_memory_equal(x.data, y.data, n_bytes);
    mem_free(x.data);
    mem_free(y.data);
}

/* In the files' own dtype, and converted. */
static void stacked_experts_have_the_bits_of_experts_apart(void **state)
{
    (void)state;
    for (size_t f = 0; f < ARRAY_LEN(families); f++) {
        struct golden g;
        struct scratch s;
        struct weights *apart, *stacked;
        scratch_init(&s);
        golden_open(&g, families[f].golden, "config.json", &request);
        write_stacked(g.folder, s.folder, &(struct stacking){.family = &families[f]});
        const struct model_graph *m = &g.built;
        expect_ok(weights_open(&apart, g.folder, m->params, m->n_params));
        expect_ok(weights_open(&stacked, s.folder, m->params, m->n_params));
        for (int i = 0; i < m->n_params; i++) {
            expect_same_parameter(apart, stacked, i, &m->params[i], DTYPE_F32);
            expect_same_parameter(apart, stacked, i, &m->params[i], DTYPE_BF16);
        }
        weights_close(apart);
        weights_close(stacked);
        golden_close(&g);
        scratch_release(&s);
    }
}

static void experts_stacked_the_other_way_round_are_refused_with_the_fix(void **state)
{
    struct golden g;
    struct scratch s;
    struct weights *w;
    (void)state;
    scratch_init(&s);
    golden_open(&g, "qwen3_moe", "config.json", &request);
    const struct stacking x = {.family = &families[2], .turned = true};
    write_stacked(g.folder, s.folder, &x);
    assert_int_equal(weights_open(&w, s.folder, g.built.params, g.built.n_params), ERR_DATA);
    expect_message("experts.down_proj"); /* the other is square, and shows nothing */
    expect_message("transpose its last two axes");
    golden_close(&g);
    scratch_release(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stacked_experts_have_the_bits_of_experts_apart),
        cmocka_unit_test(experts_stacked_the_other_way_round_are_refused_with_the_fix),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
