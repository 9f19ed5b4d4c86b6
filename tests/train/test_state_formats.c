/* Runs whose optimizer states are in 8-bit codes: what they learn, what they take, what they
 * repeat.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "support/golden.h"
#include "support/training.h"

/* Matrices of 4096 elements and more, and small ones beside them. */
static const char model[] = "{\"model_type\": \"llama\", \"vocab_size\": 96, \"hidden_size\": 64, "
                            "\"intermediate_size\": 128, \"num_hidden_layers\": 2, "
                            "\"num_attention_heads\": 4, \"num_key_value_heads\": 4, "
                            "\"max_position_embeddings\": 64}";

static struct precision with_states(struct precision p, enum format states)
{
    p.states = states;
    return p;
}

static struct training_options options(const struct precision *p)
{
    return (struct training_options){.config = model,
                                     .batch = 2,
                                     .seq_len = 24,
                                     .one_batch = true,
                                     .max_grad_norm = 1.0,
                                     .lr = 1e-3,
                                     .precision = p,
                                     .seed = precision_needs_chance(p) ? 3 : 0};
}

static void run_steps(struct training *t, const struct precision *p, int n_steps)
{
    struct training_options o = options(p);
    training_init(t, &o);
    training_emit(t);
    training_start(t);
    for (int step = 0; step < n_steps; step++)
        training_step(t, step);
}

static double loss_after(const struct precision *p, int n_steps)
{
    struct training t;
    run_steps(&t, p, n_steps);
    double loss = (double)training_output(&t, "loss") / (double)training_output(&t, "count");
    training_expect_prediction(&t);
    training_release(&t);
    return loss;
}

/* ---- what they learn ------------------------------------------------------------------------- */

static void expect_like_f32(struct precision p, double most)
{
    struct precision f32 = with_states(p, FORMAT_F32), coded = with_states(p, FORMAT_BLOCK8);
    double before = loss_after(&f32, 1), wide = loss_after(&f32, 60),
           narrow = loss_after(&coded, 60);
    print_message("from %.4f: f32 states %.4f, 8-bit states %.4f\n", before, wide, narrow);
    assert_true(wide < 0.8 * before);
    assert_true(fabs(narrow - wide) < most * wide);
}

static void states_of_8_bits_learn_like_f32_beside_f32_weights(void **state)
{
    (void)state;
    expect_like_f32(precision_f32(), 0.02);
}

static void states_of_8_bits_learn_like_f32_beside_masters(void **state)
{
    (void)state;
    expect_like_f32(precision_bf16(), 0.02);
}

static void states_of_8_bits_learn_like_f32_beside_bf16_weights_rounded_by_chance(void **state)
{
    struct precision p = precision_bf16();
    (void)state;
    p.masters = false;
    expect_like_f32(p, 0.03);
}

/* ---- what they take -------------------------------------------------------------------------- */

/* Every state's bytes are those of its format, whichever the parameter has. */
static void optimizer_memory_is_what_the_formats_say(void **state)
{
    const enum format formats[] = {FORMAT_F32, FORMAT_BF16, FORMAT_BLOCK8};
    int64_t n_bytes[ARRAY_LEN(formats)];
    (void)state;
    for (size_t f = 0; f < ARRAY_LEN(formats); f++) {
        struct training t;
        struct precision p = with_states(precision_f32(), formats[f]);
        struct training_options o = options(&p);
        int64_t by_class[MEMORY_CLASS_COUNT], want = 0;
        training_init(&t, &o);
        training_emit(&t);
        const struct stage *s = t.stage;
        for (int i = 0; i < s->io.n_params; i++) {
            const struct value *v = graph_value(s->graph, s->io.params[i].value);
            enum format states = precision_role(&p, v, false).states;
            struct format_part part[FORMAT_PARTS];
            int n = format_parts(states, &v->shape, part);
            for (int k = 0; k < n; k++)
                want += 2 * align_up(shape_elems(&part[k].shape) * dtype_size(part[k].dtype),
                                     ARENA_ALIGN);
        }
        program_memory_at(s->program, &t.engine.work.storage, TIER_DEVICE,
                          program_peak(s->program, TIER_DEVICE), by_class);
        assert_int_equal(by_class[MEMORY_OPTIMIZER], want);
        n_bytes[f] = want;
        training_release(&t);
    }
    assert_true(n_bytes[1] < n_bytes[0]);
    assert_true(3 * n_bytes[2] < n_bytes[0]);
}

/* ---- what they repeat ------------------------------------------------------------------------ */

static void two_runs_leave_the_same_codes_and_scales(void **state)
{
    struct precision p = with_states(precision_bf16(), FORMAT_BLOCK8);
    uint64_t digest[2];
    (void)state;
    p.masters = false;
    for (int i = 0; i < 2; i++) {
        struct training t;
        run_steps(&t, &p, 5);
        digest[i] = training_digest(&t);
        training_release(&t);
    }
    assert_true(digest[0] == digest[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(states_of_8_bits_learn_like_f32_beside_f32_weights),
        cmocka_unit_test(states_of_8_bits_learn_like_f32_beside_masters),
        cmocka_unit_test(states_of_8_bits_learn_like_f32_beside_bf16_weights_rounded_by_chance),
        cmocka_unit_test(optimizer_memory_is_what_the_formats_say),
        cmocka_unit_test(two_runs_leave_the_same_codes_and_scales),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
