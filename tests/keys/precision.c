/* Keys of the number formats and of loss scaling. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "keys/keys.h"
#include "support/trial.h"

static int64_t part(const struct trial *t, enum snug_memory m)
{
    return t->plan.breakdown[m];
}

/* Bytes that are about `share` of others: buffers are padded, and norms stay f32. */
static void expect_share(int64_t a, int64_t b, double share)
{
    expect_within((double)a, share * (double)b, 0.15);
}

/* ---- formats --------------------------------------------------------------------------------- */

void key_bf16(void)
{
    struct trial a, b;
    TRAIN(&a, "bf16=false");
    TRAIN(&b, "bf16=true");
    assert_string_equal(a.precision, "f32");
    assert_string_equal(b.precision, "bf16 with f32 masters");
    expect_share(part(&b, SNUG_MEMORY_WEIGHTS), part(&a, SNUG_MEMORY_WEIGHTS), 0.5);
    expect_share(part(&b, SNUG_MEMORY_MASTERS), part(&a, SNUG_MEMORY_WEIGHTS), 1.0);
    assert_true(a.steps[0].loss != b.steps[0].loss);
    expect_within(b.steps[2].loss, a.steps[2].loss, 0.02);
}

void key_fp16(void)
{
    struct trial t;
    TRAIN(&t, "fp16=true");
    assert_string_equal(t.precision, "f16 with f32 masters and loss scaling");
    assert_true(t.steps[2].loss_scale > 0);
    REFUSED("are both true", "fp16=true", "bf16=true");
}

void key_bf16_full_eval(void)
{
    struct trial t;
    REFUSED("set bf16: true", "bf16_full_eval=true");
    TRAIN(&t, "bf16_full_eval=true", "bf16=true", trial_text(), "val_set_size=4",
          "eval_on_start=true");
    assert_int_equal(t.n_evals, 1);
}

void key_fp16_full_eval(void)
{
    struct trial t;
    REFUSED("set fp16: true", "fp16_full_eval=true");
    TRAIN(&t, "fp16_full_eval=true", "fp16=true", trial_text(), "val_set_size=4",
          "eval_on_start=true");
    assert_int_equal(t.n_evals, 1);
}

/* The CPU does not have it: asked for it is refused, left open it is not used. */
void key_tf32(void)
{
    struct trial a, b;
    REFUSED("tf32", "tf32=true");
    TRAIN(&a, "tf32=auto");
    TRAIN(&b, "tf32=false");
    assert_true(trial_same_losses(&a, &b));
}

void key_master_dtype(void)
{
    struct trial a, b;
    TRAIN(&a, "bf16=true");
    TRAIN(&b, "bf16=true", "master_dtype=bf16");
    assert_string_equal(b.precision, "bf16 with stochastic rounding");
    assert_int_equal(part(&b, SNUG_MEMORY_MASTERS), 0);
    assert_true(a.steps[0].loss == b.steps[0].loss && a.steps[2].loss != b.steps[2].loss);
    REFUSED("master_dtype", "master_dtype=bf16");
    TRAIN(&b, "bf16=true", "master_dtype=24bit"); /* a byte where f32 has four */
    assert_string_equal(b.precision, "bf16 with 24-bit masters");
    expect_share(part(&b, SNUG_MEMORY_MASTERS), part(&a, SNUG_MEMORY_MASTERS), 0.25);
    assert_true(a.steps[0].loss == b.steps[0].loss && a.steps[2].loss != b.steps[2].loss);
    expect_within(b.steps[2].loss, a.steps[2].loss, 1e-3);
    REFUSED("set bf16: true", "master_dtype=24bit");
    REFUSED("goes with adamw, lion and muon", "bf16=true", "master_dtype=24bit", "optim=sgd");
}

void key_gradient_dtype(void)
{
    struct trial a, b;
    TRAIN(&a, "bf16=true", "gradient_accumulation_steps=2");
    TRAIN(&b, "bf16=true", "gradient_accumulation_steps=2", "gradient_dtype=bf16");
    expect_share(part(&b, SNUG_MEMORY_GRADIENTS), part(&a, SNUG_MEMORY_GRADIENTS), 0.5);
    assert_true(a.steps[0].loss == b.steps[0].loss && a.steps[2].loss != b.steps[2].loss);
}

void key_optim_state_dtype(void)
{
    struct trial a, b;
    TRAIN(&a, "optim_state_dtype=f32");
    TRAIN(&b, "optim_state_dtype=bf16");
    expect_share(part(&b, SNUG_MEMORY_OPTIMIZER), part(&a, SNUG_MEMORY_OPTIMIZER), 0.5);
    assert_true(a.steps[0].loss == b.steps[0].loss && a.steps[2].loss != b.steps[2].loss);
}

/* ---- loss scaling ---------------------------------------------------------------------------- */

/* A step's scale is that of the step after it. */
static void expect_scales(const struct trial *t, const int *powers)
{
    for (int i = 0; i < t->n_steps; i++) {
        if (t->steps[i].loss_scale != ldexp(1.0, powers[i]))
            fail_msg("after step %d the scale is %g, not 2^%d", i + 1, t->steps[i].loss_scale,
                     powers[i]);
    }
}

void key_loss_scale(void)
{
    struct trial t;
    TRAIN(&t, "fp16=true", "loss_scale=64", "max_steps=4");
    expect_scales(&t, (const int[]){6, 6, 6, 6});
    REFUSED("belongs to fp16", "loss_scale=64");
}

void key_initial_scale_power(void)
{
    struct trial t;
    TRAIN(&t, "fp16=true", "initial_scale_power=5", "max_steps=4");
    expect_scales(&t, (const int[]){5, 5, 5, 5});
}

void key_loss_scale_window(void)
{
    struct trial t;
    TRAIN(&t, "fp16=true", "initial_scale_power=5", "loss_scale_window=2", "max_steps=5");
    expect_scales(&t, (const int[]){5, 6, 6, 7, 7});
}

/* A scale of 2^64 overflows whatever is computed: each such step is skipped. The first overflows
 * are borne until the scale has grown again. */
void key_loss_scale_hysteresis(void)
{
    struct trial t;
    TRAIN(&t, "fp16=true", "initial_scale_power=64", "max_steps=4");
    expect_scales(&t, (const int[]){63, 62, 61, 60});
    assert_true(t.steps[0].skipped && t.steps[3].skipped);
    TRAIN(&t, "fp16=true", "initial_scale_power=64", "loss_scale_hysteresis=2", "max_steps=4");
    expect_scales(&t, (const int[]){64, 63, 62, 61});
}

void key_min_loss_scale(void)
{
    struct trial t;
    TRAIN(&t, "fp16=true", "initial_scale_power=64", "min_loss_scale=4611686018427387904",
          "max_steps=4");
    expect_scales(&t, (const int[]){63, 62, 62, 62});
}
