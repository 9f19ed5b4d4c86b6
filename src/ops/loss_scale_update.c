/* loss_scale_update.c: the loss scale of the next step, from how this one went.
 *
 * Inputs: scale (the loss scale), good_steps, applied_steps, tolerated, all changed in place;
 * update (clip_scale's scale: 0 when updates are to change nothing) and norm (clip_scale's).
 *
 * A norm that is not finite is an overflow: good_steps starts over; the scale is multiplied by
 * backoff, but not below minimum. With hysteresis h, the first h - 1 overflows since the scale last
 * grew are tolerated: they count up and leave the scale alone. Otherwise good_steps counts; at
 * `window` of them the scale is multiplied by growth (if it stays finite), and both counts start
 * over. applied_steps counts the steps whose updates changed something: AdamW's bias correction
 * goes by it. */
#include "ops/update_support.h"

static const struct attr_def attrs[] = {
    {.name = "growth", .type = ATTR_FLOAT, .value = {.f = 2.0}},
    {.name = "backoff", .type = ATTR_FLOAT, .value = {.f = 0.5}},
    {.name = "window", .type = ATTR_INT, .value = {.i = 2000}},
    {.name = "hysteresis", .type = ATTR_INT, .value = {.i = 1}},
    {.name = "minimum", .type = ATTR_FLOAT, .value = {.f = 1.0}},
};

static enum status infer(const struct op_call *c)
{
    TRY(need_number(c, 0));
    for (int i = 1; i <= 3; i++)
        TRY(need_step(c, i));
    TRY(need_number(c, 4));
    TRY(need_number(c, 5));
    if (!(call_float(c, 0) >= 1.0) || !(call_float(c, 1) > 0.0 && call_float(c, 1) <= 1.0))
        return REJECT(c, "growth must be at least 1 and backoff in (0, 1]");
    if (call_int(c, 2) < 1 || call_int(c, 2) > INT32_MAX || call_int(c, 3) < 1 ||
        call_int(c, 3) > INT32_MAX)
        return REJECT(c, "window and hysteresis must be at least 1");
    if (!(call_float(c, 4) > 0.0))
        return REJECT(c, "minimum must be positive");
    for (int i = 0; i <= 3; i++)
        out_like(c, i, i);
    return OK;
}

static const struct alias_rule aliases[] = {{ALIAS_UPDATE, 0, 0},
                                            {ALIAS_UPDATE, 1, 1},
                                            {ALIAS_UPDATE, 2, 2},
                                            {ALIAS_UPDATE, 3, 3},
                                            {ALIAS_NONE, 0, 0}};

static const struct op_sample samples[] = {
    {.text = "f32[1]=65536, i32[1]=5, i32[1]=9, i32[1]=0, f32[1]=0.5, f32[1]=3"},
    {.text = "f32[1]=65536, i32[1]=1999, i32[1]=9, i32[1]=0, f32[1]=0.5, f32[1]=3"},
    {.text = "f32[1]=65536, i32[1]=5, i32[1]=9, i32[1]=0, f32[1]=0, f32[1]=inf"},
    {.text = "f32[1]=65536, i32[1]=5, i32[1]=9, i32[1]=1, f32[1]=0, f32[1]=inf {hysteresis=3}"},
    {.text = "f32[1]=65536, i32[1]=5, i32[1]=9, i32[1]=2, f32[1]=0, f32[1]=inf {hysteresis=3}"},
    {.text = "f32[1]=1, i32[1]=5, i32[1]=9, i32[1]=0, f32[1]=0, f32[1]=-inf"},
    {.text = "f32[1]=8, i32[1]=1, i32[1]=2, i32[1]=1, f32[1]=0, f32[1]=0 {window=2, growth=4.0}"},
};
static const char *const rejects[] = {
    "f32[2], i32[1], i32[1], i32[1], f32[1], f32[1]",
    "f32[1], f32[1], i32[1], i32[1], f32[1], f32[1]",
    "f32[1], i32[1], i32[1], i32[1], _, f32[1]",
    "f32[1], i32[1], i32[1], i32[1], f32[1], f32[1] {growth=0.5}",
    "f32[1], i32[1], i32[1], i32[1], f32[1], f32[1] {backoff=0.0}",
    "f32[1], i32[1], i32[1], i32[1], f32[1], f32[1] {window=0}",
    "f32[1], i32[1], i32[1], i32[1], f32[1], f32[1] {minimum=0.0}",
};

const struct op_def op_def_loss_scale_update = {
    .name = "loss_scale_update",
    .synopsis = "scale' = max(minimum, backoff scale) when norm is not finite, growth scale after "
                "window finite ones",
    .min_in = 6,
    .max_in = 6,
    .n_out = 4,
    .attrs = attrs,
    .n_attrs = ARRAY_LEN(attrs),
    .infer = infer,
    .no_grad = true,
    .aliases = aliases,
    OP_NO_ACCUMULATE,
    .recompute = RECOMPUTE_NEVER,
    .samples = samples,
    .n_samples = ARRAY_LEN(samples),
    .rejects = rejects,
    .n_rejects = ARRAY_LEN(rejects),
};
