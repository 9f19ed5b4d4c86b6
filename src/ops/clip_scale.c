/* clip_scale.c: what every gradient is multiplied by in the update. Inputs: count, scale_in or
 * absent, then one sum of squares per gradient; outputs: scale, norm.
 *
 * Gradients are of the loss divided by `nominal` tokens and, when scale_in (the loss scale) is
 * there, multiplied by it; `count` tokens really counted. s undoes both. count = 0 gives s = 0.
 * max_norm = 0 means no clipping; then no sum of squares need be given. When the norm is not finite
 * it is passed on as it is and scale is 0, which updates take as "leave everything unchanged". */
#include "ops/update_support.h"

static const struct attr_def attrs[] = {
    {.name = "max_norm", .type = ATTR_FLOAT},
    {.name = "nominal", .type = ATTR_FLOAT, .value = {.f = 1.0}},
};

static enum status infer(const struct op_call *c)
{
    for (int i = 0; i < c->n_in; i++) {
        if (i != 1 || call_has(c, 1))
            TRY(need_number(c, i));
    }
    if (!(call_float(c, 0) >= 0.0) || !(call_float(c, 1) > 0.0))
        return REJECT(c, "max_norm must not be negative and nominal must be positive");
    if (call_float(c, 0) > 0.0 && c->n_in < 3)
        return REJECT(c, "clipping to max_norm needs the gradients' sums of squares");
    out_set(c, 0, DTYPE_F32, shape_of(1, (int64_t)1));
    out_set(c, 1, DTYPE_F32, shape_of(1, (int64_t)1));
    return OK;
}

static const struct op_sample samples[] = {
    {.text = "f32[1]=7, _, f32[1]+ {max_norm=1.0, nominal=8.0}"},
    {.text = "f32[1]=8, f32[1]=1024, f32[1]+, f32[1]+, f32[1]+ {max_norm=0.5, nominal=8.0}"},
    {.text = "f32[1]=8, _, f32[1]+, f32[1]+"},
    {.text = "f32[1]=0, _, f32[1]+ {max_norm=1.0}"},
    {.text = "f32[1]=7 {nominal=8.0}"},
};
static const char *const rejects[] = {
    "f32[1], _ {max_norm=1.0}",
    "f32[1], _, f32[2]",
    "f32[1], _, i32[1]",
    "f32[1], _, _",
    "f32[1], _, f32[1] {max_norm=-1.0}",
    "f32[1], _, f32[1] {nominal=0.0}",
};

const struct op_def op_def_clip_scale = {
    .name = "clip_scale",
    .synopsis = "s = nominal / (count scale_in), norm = s sqrt(sum of squares), scale = s min(1, "
                "max_norm / (norm + 1e-6))",
    .min_in = 1,
    .max_in = -1,
    .n_out = 2,
    .attrs = attrs,
    .n_attrs = ARRAY_LEN(attrs),
    .infer = infer,
    .no_grad = true,
    OP_NO_ACCUMULATE,
    .recompute = RECOMPUTE_NEVER,
    .samples = samples,
    .n_samples = ARRAY_LEN(samples),
    .rejects = rejects,
    .n_rejects = ARRAY_LEN(rejects),
};
