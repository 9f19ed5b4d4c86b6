/* Updates in slices on a GPU: weights, masters, states and gradients at home on the host, fetched
 * ahead and updated slice by slice, give the losses and norms of a run that keeps everything, bit
 * for bit, in exactly the memory that was predicted. Skipped without a GPU. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "support/golden.h"
#include "support/gpu.h"
#include "support/training.h"

enum { N_STEPS = 4 };

static struct device gpu;

static const char config[] =
    "{\"model_type\": \"llama\", \"vocab_size\": 2000, \"hidden_size\": 64,"
    " \"intermediate_size\": 96, \"num_hidden_layers\": 2, \"num_attention_heads\": 2,"
    " \"num_key_value_heads\": 1, \"max_position_embeddings\": 64, \"rms_norm_eps\": 1e-5,"
    " \"tie_word_embeddings\": false}";

static const struct precision kinds[] = {
    {.weights = DTYPE_F32, .gradients = DTYPE_F32, .states = FORMAT_F32},
    {.weights = DTYPE_BF16, .gradients = DTYPE_BF16, .states = FORMAT_BF16},
    {.weights = DTYPE_BF16, .gradients = DTYPE_BF16, .states = FORMAT_BLOCK8},
    {.weights = DTYPE_BF16, .gradients = DTYPE_F32, .states = FORMAT_BLOCK8, .masters = true},
};

struct result {
    float losses[N_STEPS], norms[N_STEPS];
    int n_slices;
};

static struct result run(const struct training_options *o, bool away, int64_t slice_bytes)
{
    struct training t;
    struct result r = {0};
    training_init(&t, o);
    if (away)
        training_go_away(&t);
    t.stage->plan.ahead_bytes = t.stage->plan.behind_bytes = away ? 1 << 18 : 0;
    t.stage->plan.slice_bytes = slice_bytes;
    training_emit(&t);
    for (size_t i = 0; i < t.stage->program->instrs.n; i++)
        r.n_slices += t.stage->program->instrs.items[i].slice.n > 0;
    training_start(&t);
    for (int i = 0; i < N_STEPS; i++) {
        training_step(&t, i);
        r.losses[i] = training_output(&t, "loss");
        r.norms[i] = training_output(&t, "grad_norm");
    }
    training_expect_prediction(&t);
    training_release(&t);
    return r;
}

static void expect_same(const struct result *want, const struct result *got)
{
    assert_memory_equal(want->losses, got->losses, sizeof(want->losses));
    assert_memory_equal(want->norms, got->norms, sizeof(want->norms));
}

/* Slices that begin where everything is aligned, and such that do not. */
static void slices_change_no_bit_of_any_loss(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
        for (int clipped = 0; clipped <= 1; clipped++) {
            struct training_options o = {.config = config,
                                         .batch = 2,
                                         .seq_len = 16,
                                         .max_grad_norm = clipped ? 1.0 : 0.0,
                                         .precision = &kinds[i],
                                         .seed = precision_needs_chance(&kinds[i]),
                                         .device = &gpu};
            struct result kept = run(&o, false, 0), whole = run(&o, true, 0);
            struct result even = run(&o, true, 1 << 16), odd = run(&o, true, 7000);
            expect_same(&kept, &whole);
            expect_same(&kept, &even);
            expect_same(&kept, &odd);
            assert_true(whole.n_slices == 0 && even.n_slices > 4 && odd.n_slices > 30);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slices_change_no_bit_of_any_loss),
    };
    if (!gpu_open(&gpu))
        return GPU_SKIPPED;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    device_close(&gpu);
    return failed;
}
