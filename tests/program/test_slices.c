/* Updates in slices: the bits of a run that keeps everything, less memory than whole updates take,
 * and exactly as much as predicted. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "support/golden.h"
#include "support/training.h"

enum { N_STEPS = 3 };

/* An embedding and a head beside which the blocks are small. */
static const char config[] =
    "{\"model_type\": \"llama\", \"vocab_size\": 2000, \"hidden_size\": 32,"
    " \"intermediate_size\": 48, \"num_hidden_layers\": 2, \"num_attention_heads\": 2,"
    " \"num_key_value_heads\": 1, \"max_position_embeddings\": 64, \"rms_norm_eps\": 1e-5,"
    " \"tie_word_embeddings\": false}";

static const struct precision kinds[] = {
    {.weights = DTYPE_F32, .gradients = DTYPE_F32, .states = FORMAT_F32},
    {.weights = DTYPE_F32, .gradients = DTYPE_F32, .states = FORMAT_BLOCK8},
    {.weights = DTYPE_BF16, .gradients = DTYPE_BF16, .states = FORMAT_BF16},
    {.weights = DTYPE_BF16, .gradients = DTYPE_BF16, .states = FORMAT_BLOCK8},
    {.weights = DTYPE_BF16, .gradients = DTYPE_F32, .states = FORMAT_F32, .masters = true},
    {.weights = DTYPE_BF16, .gradients = DTYPE_BF16, .states = FORMAT_BLOCK8, .masters = true},
};

struct result {
    uint64_t digest;
    int64_t n_bytes; /* of the device */
    int n_slices;
};

static struct result run(const struct training_options *o, bool away, int64_t ring_bytes,
                         int64_t slice_bytes)
{
    struct training t;
    struct result r = {0};
    training_init(&t, o);
    if (away)
        training_go_away(&t);
    t.stage->plan.ahead_bytes = t.stage->plan.behind_bytes = ring_bytes;
    t.stage->plan.slice_bytes = slice_bytes;
    training_emit(&t);
    for (size_t i = 0; i < t.stage->program->instrs.n; i++)
        r.n_slices += t.stage->program->instrs.items[i].slice.n > 0;
    r.n_bytes = t.engine.work.n_bytes[TIER_DEVICE];
    training_start(&t);
    for (int i = 0; i < N_STEPS; i++)
        training_step(&t, i);
    r.digest = training_digest(&t);
    training_expect_prediction(&t);
    training_release(&t);
    return r;
}

static void try_options(const struct training_options *o, int kind)
{
    struct result kept = run(o, false, 0, 0), whole = run(o, true, 0, 0);
    struct result slices = run(o, true, 0, 8192), ahead = run(o, true, 32768, 8192);
    print_message("kind %d, %d micro-steps, norm %g: %lld bytes whole, %lld in %d slices, %lld "
                  "ahead\n",
                  kind, (int)o->n_micro, o->max_grad_norm, (long long)whole.n_bytes,
                  (long long)slices.n_bytes, slices.n_slices, (long long)ahead.n_bytes);
    assert_true(whole.digest == kept.digest);
    assert_true(slices.digest == kept.digest);
    assert_true(ahead.digest == kept.digest);
    /* Small states leave the peak to the loss. */
    assert_true(slices.n_bytes + (o->precision->states == FORMAT_F32) <= whole.n_bytes);
    assert_int_equal(whole.n_slices, 0);
    assert_true(slices.n_slices > 8);
}

static void updates_in_slices_give_the_same_bits_in_less_memory(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
        for (int n_micro = 1; n_micro <= 2; n_micro++) {
            struct training_options o = {.config = config,
                                         .batch = 1,
                                         .seq_len = 4,
                                         .n_micro = n_micro,
                                         .precision = &kinds[i],
                                         .seed = precision_needs_chance(&kinds[i])};
            try_options(&o, (int)i);
            o.max_grad_norm = 1.0;
            try_options(&o, (int)i);
        }
    }
}

/* What an update has on the device of what is away: a slice of each, where nothing runs ahead. */
static void no_more_than_a_slice_of_anything_is_staged_by_an_update(void **state)
{
    enum { SLICE = 8192 };
    (void)state;
    struct training t;
    training_init(&t, &(struct training_options){.config = config,
                                                 .batch = 1,
                                                 .seq_len = 4,
                                                 .max_grad_norm = 1.0,
                                                 .precision = &kinds[3],
                                                 .seed = 1});
    training_go_away(&t);
    t.stage->plan.slice_bytes = SLICE;
    training_emit(&t);
    const struct program *p = t.stage->program;
    int64_t live = 0;
    int32_t last = -1, n_slices = 0;
    for (int32_t k = 0; (size_t)k < p->instrs.n; k++) {
        const struct instr *i = &p->instrs.items[k];
        if (i->kind != INSTR_COMPUTE || i->slice.n == 0)
            continue;
        n_slices++;
        last = k;
        for (size_t b = 0; b < p->buffers.n; b++) {
            const struct buffer *x = &p->buffers.items[b];
            bool staged = x->tier == TIER_DEVICE && x->kind == MEMORY_STAGING && x->first > 0;
            if (staged && x->first <= k && x->last >= k) {
                assert_true(x->n_bytes <= SLICE);
                live = MAX(live, x->n_bytes);
            }
        }
    }
    assert_true(last > 0 && n_slices > 30 && live > SLICE / 2);
    training_release(&t);
}

/* Tensors that no memory holds are planned too, if only to say so: slices of a few bytes stand for
 * them. */
static void nothing_is_cut_into_more_slices_than_can_be_planned(void **state)
{
    enum { MOST = 256 };
    (void)state;
    struct training t;
    int n_most = 0;
    training_init(&t, &(struct training_options){
                          .config = config, .batch = 1, .seq_len = 4, .precision = &kinds[0]});
    training_go_away(&t);
    t.stage->plan.slice_bytes = 16;
    training_emit(&t);
    const struct program *p = t.stage->program;
    for (size_t k = 0, n = 0; k < p->instrs.n; k++) {
        const struct instr *i = &p->instrs.items[k];
        if (i->kind != INSTR_COMPUTE || i->slice.n == 0)
            continue;
        n = i->slice.first == 0 ? 1 : n + 1;
        n_most = MAX(n_most, (int)n);
    }
    assert_in_range(n_most, MOST, 2 * MOST); /* whole granules */
    training_release(&t);
}

/* Bytes that a section fetches from the host. */
static int64_t fetched(const struct training_options *o, int64_t slice_bytes, int *n_slices)
{
    struct training t;
    int64_t n_bytes = 0;
    training_init(&t, o);
    training_go_away(&t);
    t.stage->plan.defer_updates = plan_may_defer(&t.stage->plan, t.stage->graph);
    t.stage->plan.slice_bytes = slice_bytes;
    assert_true(t.stage->plan.defer_updates);
    training_emit(&t);
    const struct program *p = t.stage->program;
    const struct section *s = program_section(p, "step");
    for (int32_t k = s->first; k < s->first + s->n; k++) {
        const struct instr *i = &p->instrs.items[k];
        *n_slices += i->slice.n > 0;
        if (i->kind == INSTR_COPY && i->queue == QUEUE_IN)
            n_bytes += p->operands.items[i->first_operand].n_bytes;
    }
    training_release(&t);
    return n_bytes;
}

/* A weight that is updated right before the forward pass reads it is fetched once for both. */
static void slices_fetch_nothing_twice(void **state)
{
    (void)state;
    int n_whole = 0, n_slices = 0;
    struct training_options o = {
        .config = config, .batch = 1, .seq_len = 4, .max_grad_norm = 1.0, .precision = &kinds[0]};
    int64_t whole = fetched(&o, 0, &n_whole), slices = fetched(&o, 8192, &n_slices);
    assert_int_equal(n_whole, 0);
    assert_true(n_slices > 30);
    assert_int_equal(slices, whole);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(updates_in_slices_give_the_same_bits_in_less_memory),
        cmocka_unit_test(slices_fetch_nothing_twice),
        cmocka_unit_test(nothing_is_cut_into_more_slices_than_can_be_planned),
        cmocka_unit_test(no_more_than_a_slice_of_anything_is_staged_by_an_update),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
