/* adafactor.c: Adafactor (Shazeer and Stern), as transformers has it, without a first moment.
 * Inputs: param, grad, v, lr, step (counts from 1), scale. Of a matrix, and of each of several, v
 * holds the mean square of every row and then of every column; of a vector that of every element.
 *
 *     b = 1 - step^decay_rate;  v' = b v + (1 - b) mean(g^2 + epsilon1)
 *     u = g / sqrt(row' column' / mean(row'));  u = u / max(1, rms(u) / clip_threshold)
 *     rate = relative_step ? min(warmup_init ? 1e-6 step : 1e-2, 1 / sqrt(step)) : lr
 *     rate = scale_parameter ? rate max(epsilon2, rms(param)) : rate
 *     param' = param (1 - rate weight_decay) - rate u
 *
 * All this is of one tensor as checkpoints have it, and a parameter may hold several (layout of v:
 * graph/factored.h), each of which is updated as if it were alone:
 *   rows           of tensors one below the other: q, k and v, or gate and up; none: it is one
 *   experts        above 0, the first axis counts tensors: those of the experts in a file that has
 *                  each by itself. Their biases are vectors then, not one matrix
 *   channels_last  a convolution's weight [out, taps.., in], [out, in, taps..] in files: a matrix
 *                  is the last two axes of taps, and rms is of all matrices together. With one axis
 *                  of taps the matrix is the same either way round, as it is where files have a
 *                  matrix transposed: rows and columns have the same part in u
 *
 * What scale = 0 and seed mean are adamw's. A whole tensor decides on every element: there are no
 * slices. */
#include "ops/update_support.h"

static const struct attr_def attrs[] = {ADAFACTOR_ATTR_DEFS};

static enum status infer(const struct op_call *c)
{
    TRY(need_adafactor(c));
    out_like(c, 0, 0);
    out_like(c, 1, ADAFACTOR_V);
    return OK;
}

static double flops(const struct op_call *c)
{
    return 14.0 * (double)shape_elems(&c->in[0].shape);
}

static const struct alias_rule aliases[] = {
    {ALIAS_UPDATE, 0, 0}, {ALIAS_UPDATE, 1, 2}, {ALIAS_NONE, 0, 0}};

static const struct op_sample samples[] = {
    {.text = "f32[3,5], f32[3,5], f32[1,8]+, f32[1]=0.01, i32[1]=3, f32[1]+"},
    {.text = "f32[1,7], f32[1,7], f32[1,8]+, f32[1]=0.01, i32[1]=3, f32[1]+ {weight_decay=0.1}"},
    {.text = "f32[33,70], f32[33,70], f32[1,103]+, f32[1]=0.01, i32[1]=1, f32[1]+ "
             "{scale_parameter=true, weight_decay=0.1}"},
    {.text = "f32[2,9,4], f32[2,9,4], f32[2,13]+, f32[1]=0.01, i32[1]=20, f32[1]+ "
             "{relative_step=true}"},
    {.text = "f32[1030], f32[1030], f32[1030]+, f32[1]=0.01, i32[1]=5, f32[1]+ "
             "{relative_step=true, warmup_init=true, scale_parameter=true}"},
    {.text = "f32[6], f32[6], f32[6]+, f32[1]=0.01, i32[1]=2, f32[1]=1 {clip_threshold=0.5, "
             "decay_rate=-0.5}"},
    {.text = "bf16[19,21], bf16[19,21], f32[1,40]+, f32[1]=0.01, i32[1]=7, f32[1]=0.5"},
    {.text = "bf16[65,33], f32[65,33], f32[1,98]+, f32[1]=0.01, i32[1]=7, f32[1]=0.5 {seed=11}"},
    {.text = "f32[4,3], f32[4,3], f32[1,7]+, f32[1]=0.01, i32[1]=2, f32[1]=0"},
    /* pieces: of matrices, of one row, of many columns; of vectors, in runs and within one */
    {.text = "f32[13,7], f32[13,7], f32[1,34]+, f32[1]=0.01, i32[1]=3, f32[1]+ {rows=[5, 1, 7], "
             "weight_decay=0.1, scale_parameter=true, clip_threshold=0.3}"},
    {.text = "f32[47,131], f32[47,131], f32[1,309]+, f32[1]=0.01, i32[1]=1, f32[1]+ "
             "{rows=[33, 14], scale_parameter=true}"},
    {.text = "bf16[9,1100], bf16[9,1100], f32[1,3309]+, f32[1]=0.01, i32[1]=4, f32[1]=0.5 "
             "{rows=[2, 6, 1]}"},
    {.text = "bf16[11,3], f32[11,3], f32[1,35]+, f32[1]=0.01, i32[1]=4, f32[1]=0.5 "
             "{rows=[1, 1, 1, 1, 2, 1, 1, 3], seed=11}"},
    {.text = "f32[3077], f32[3077], f32[3077]+, f32[1]=0.01, i32[1]=6, f32[1]+ "
             "{rows=[1027, 2, 2048], scale_parameter=true, clip_threshold=0.2, weight_decay=0.1}"},
    {.text = "f32[6], f32[6], f32[6]+, f32[1]=0.01, i32[1]=2, f32[1]=0 {rows=[2, 4]}"},
    /* experts: with pieces, and vectors */
    {.text = "f32[3,10,6], f32[3,10,6], f32[3,22]+, f32[1]=0.01, i32[1]=3, f32[1]+ {experts=3, "
             "rows=[7, 3], scale_parameter=true, clip_threshold=0.3}"},
    {.text = "bf16[5,4,70], bf16[5,4,70], f32[5,74]+, f32[1]=0.01, i32[1]=3, f32[1]+ {experts=5}"},
    {.text = "f32[3,1100], f32[3,1100], f32[3,1100]+, f32[1]=0.01, i32[1]=2, f32[1]+ {experts=3, "
             "rows=[1030, 70], scale_parameter=true}"},
    {.text = "f32[2,3,5,4], f32[2,3,5,4], f32[6,9]+, f32[1]=0.01, i32[1]=2, f32[1]+ {experts=2, "
             "scale_parameter=true}"},
    /* convolutions: of two axes, of three, of one channel, of one tap */
    {.text = "f32[5,3,4,7], f32[5,3,4,7], f32[5,49]+, f32[1]=0.01, i32[1]=3, f32[1]+ "
             "{channels_last=true, scale_parameter=true, clip_threshold=0.5}"},
    {.text = "f32[3,2,3,3,70], f32[3,2,3,3,70], f32[6,420]+, f32[1]=0.01, i32[1]=2, f32[1]+ "
             "{channels_last=true, weight_decay=0.1}"},
    {.text = "bf16[9,3,5,1], bf16[9,3,5,1], f32[9,8]+, f32[1]=0.01, i32[1]=5, f32[1]=0.5 "
             "{channels_last=true}"},
    {.text = "f32[2,1,1,300], f32[2,1,1,300], f32[2,600]+, f32[1]=0.01, i32[1]=2, f32[1]+ "
             "{channels_last=true}"},
};
static const char *const rejects[] = {
    "f32[3,5], f32[3,4], f32[1,8], f32[1], i32[1], f32[1]",
    "f32[3,5], f32[3,5], f32[1,7], f32[1], i32[1], f32[1]",
    "f32[3,5], f32[3,5], f32[15], f32[1], i32[1], f32[1]",
    "f32[3,5], f32[3,5], bf16[1,8], f32[1], i32[1], f32[1]",
    "f32[3,5], f32[3,5], f32[1,8], f32[2], i32[1], f32[1]",
    "f32[3,5], f32[3,5], f32[1,8], f32[1], i64[1], f32[1]",
    "f32[3,5], f32[3,5], f32[1,8], f32[1], i32[1], f32[1] {decay_rate=0.5}",
    "f32[3,5], f32[3,5], f32[1,8], f32[1], i32[1], f32[1] {clip_threshold=0.0}",
    "f32[3,5], f32[3,5], f32[1,8], f32[1], i32[1], f32[1] {rows=[2, 1]}",
    "f32[3,5], f32[3,5], f32[1,13], f32[1], i32[1], f32[1] {rows=[2, 2]}",
    "f32[3,5], f32[3,5], f32[1,13], f32[1], i32[1], f32[1] {rows=[1, 1]}",
    "f32[3,5], f32[3,5], f32[1,13], f32[1], i32[1], f32[1] {rows=[3, 0]}",
    "f32[3,5], f32[3,5], f32[1,13], f32[1], i32[1], f32[1] {rows=[9223372036854775807, 4]}",
    "f32[4,3,5], f32[4,3,5], f32[4,13], f32[1], i32[1], f32[1] {rows=[2, 2]}",
    "f32[4,3,5], f32[4,3,5], f32[4,8], f32[1], i32[1], f32[1] {experts=3}",
    "f32[4,3,5], f32[4,3,5], f32[4,8], f32[1], i32[1], f32[1] {experts=-1}",
    "f32[4], f32[4], f32[4], f32[1], i32[1], f32[1] {experts=4}",
    "f32[4,3], f32[4,3], f32[1,7], f32[1], i32[1], f32[1] {experts=4}",
    "f32[2,3,5], f32[2,3,5], f32[2,8], f32[1], i32[1], f32[1] {channels_last=true}",
};

const struct op_def op_def_adafactor = {
    .name = "adafactor",
    .synopsis = "g = scale grad; v' = mean squares of rows and columns; param' = param (1 - rate "
                "weight_decay) - "
                "rate g / sqrt(v') / max(1, rms / clip_threshold)",
    .min_in = 6,
    .max_in = 6,
    .n_out = 2,
    .attrs = attrs,
    .n_attrs = ARRAY_LEN(attrs),
    .infer = infer,
    .no_grad = true,
    .aliases = aliases,
    OP_NO_ACCUMULATE,
    .recompute = RECOMPUTE_NEVER,
    .flops = flops,
    .samples = samples,
    .n_samples = ARRAY_LEN(samples),
    .rejects = rejects,
    .n_rejects = ARRAY_LEN(rejects),
};
