/* update_support.h: checks that the update rules share. */
#ifndef SNUG_OPS_UPDATE_SUPPORT_H
#define SNUG_OPS_UPDATE_SUPPORT_H

#include "base/dynamic_map.h"
#include "base/rounding.h"
#include "graph/format.h"
#include "ops/op_support.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Updates can be had in slices (op_def.granule): of whole draws, or of whole blocks of codes. lr,
 * step and scale, from input `at` on, are read by each. */
#define UPDATE_SLICES(at)       .granule = ROUNDING_QUAD, .whole_inputs = 7u << (at)
#define UPDATE_CODED_SLICES(at) .granule = DYNAMIC_BLOCK, .whole_inputs = 7u << (at)

/* A number kept in memory (learning rate, gradient scale): one element, f32, or f64 in programs
 * that compute in f64. */
static inline enum status need_number(const struct op_call *c, int i)
{
    if (!call_has(c, i))
        return REJECT(c, "input %d is absent", i);
    if (c->in[i].dtype != DTYPE_F32 && c->in[i].dtype != DTYPE_F64)
        return REJECT(c, "input %d must be f32 or f64, not %s", i, dtype_name(c->in[i].dtype));
    if (shape_elems(&c->in[i].shape) != 1)
        return REJECT(c, "input %d must have one element", i);
    return OK;
}

/* The step number: one i32. */
static inline enum status need_step(const struct op_call *c, int i)
{
    TRY(need_dtype(c, i, DTYPE_I32));
    if (shape_elems(&c->in[i].shape) != 1)
        return REJECT(c, "input %d (step) must have one element", i);
    return OK;
}

/* A float tensor of the parameter's (input 0's) shape. */
static inline enum status need_like_param(const struct op_call *c, int i)
{
    TRY(need_float(c, i));
    return need_shape(c, i, &c->in[0].shape);
}

/* ---- AdamW: all its ops have the same attributes --------------------------------------------- */

enum { ADAMW_BETA1, ADAMW_BETA2, ADAMW_EPSILON, ADAMW_WEIGHT_DECAY, ADAMW_SEED, ADAMW_ATTRS };

/* Initialisers of an attr_def array in that order. */
#define ADAMW_ATTR_DEFS                                                     \
    {.name = "beta1", .type = ATTR_FLOAT, .value = {.f = 0.9}},             \
        {.name = "beta2", .type = ATTR_FLOAT, .value = {.f = 0.999}},       \
        {.name = "epsilon", .type = ATTR_FLOAT, .value = {.f = 1e-8}},      \
        {.name = "weight_decay", .type = ATTR_FLOAT, .value = {.f = 0.01}}, \
    {                                                                       \
        .name = "seed", .type = ATTR_INT                                    \
    }

/* Inputs lr, step, scale from `at` on, and the attributes. */
static inline enum status need_adamw_rule(const struct op_call *c, int at)
{
    TRY(need_number(c, at));
    TRY(need_number(c, at + 2));
    TRY(need_step(c, at + 1));
    double beta1 = call_float(c, ADAMW_BETA1), beta2 = call_float(c, ADAMW_BETA2);
    if (!(beta1 >= 0.0 && beta1 < 1.0 && beta2 >= 0.0 && beta2 < 1.0))
        return REJECT(c, "beta1 is %g and beta2 %g; both must be in [0, 1)", beta1, beta2);
    if (!(call_float(c, ADAMW_EPSILON) >= 0.0 && call_float(c, ADAMW_WEIGHT_DECAY) >= 0.0))
        return REJECT(c, "epsilon and weight_decay must not be negative");
    return OK;
}

/* Inputs param, grad, m, v, lr, step, scale, and the attributes. */
static inline enum status need_adamw(const struct op_call *c)
{
    TRY(need_float(c, 0));
    TRY(need_like_param(c, 1));
    TRY(need_like_param(c, 2));
    TRY(need_like_param(c, 3));
    return need_adamw_rule(c, 4);
}

/* A full-precision copy of the parameter. */
static inline enum status need_master(const struct op_call *c, int i)
{
    TRY(need_like_param(c, i));
    if (c->in[i].dtype != dtype_accumulator(c->in[i].dtype))
        return REJECT(c, "master must be f32 or f64, not %s", dtype_name(c->in[i].dtype));
    return OK;
}

/* Or, beside a bf16 parameter, what that lacks of 24 bits (base/split.h). */
static inline enum status need_master_or_rest(const struct op_call *c, int i)
{
    if (!call_has(c, i) || c->in[i].dtype != DTYPE_U8)
        return need_master(c, i);
    if (c->in[0].dtype != DTYPE_BF16)
        return REJECT(c, "what lacks of 24 bits goes with a bf16 parameter, not %s",
                      dtype_name(c->in[0].dtype));
    return need_shape(c, i, &c->in[0].shape);
}

/* ---- AdamW with states in codes: where its inputs are ---------------------------------------- */

enum {
    CODED_M = 2, /* codes, then the largest magnitude of each block */
    CODED_V = 4,
    CODED_LR = 6,
    CODED_STEP,
    CODED_SCALE,
    CODED_MASTER,
    CODED_FACTOR = CODED_MASTER, /* where the gradient is a product: x, and input 1 is dy */
};

enum { CODED_FACTOR_DTYPE = ADAMW_WEIGHT_DECAY + 1 }; /* the attribute */

/* A state: two inputs from `at` on, as the format has them. */
static inline enum status need_coded(const struct op_call *c, int at)
{
    struct format_part part[FORMAT_PARTS];
    int n = format_parts(FORMAT_BLOCK8, &c->in[0].shape, part);
    for (int i = 0; i < n; i++) {
        TRY(need_dtype(c, at + i, part[i].dtype));
        TRY(need_shape(c, at + i, &part[i].shape));
    }
    return OK;
}

/* Inputs param, grad, m, its scales, v, its scales, lr, step, scale, and the attributes. */
static inline enum status need_adamw_coded(const struct op_call *c)
{
    TRY(need_float(c, 0));
    TRY(need_like_param(c, 1));
    TRY(need_coded(c, CODED_M));
    TRY(need_coded(c, CODED_V));
    return need_adamw_rule(c, CODED_LR);
}

/* Outputs param, m, its scales, v, its scales. */
static inline void out_adamw_coded(const struct op_call *c)
{
    out_like(c, 0, 0);
    for (int o = 1; o <= 4; o++)
        out_like(c, o, o + 1);
}

/* ---- Adafactor: both its ops have the same attributes ---------------------------------------- */

enum {
    ADAFACTOR_DECAY_RATE,
    ADAFACTOR_CLIP_THRESHOLD,
    ADAFACTOR_EPSILON1,
    ADAFACTOR_EPSILON2,
    ADAFACTOR_SCALE_PARAMETER,
    ADAFACTOR_RELATIVE_STEP,
    ADAFACTOR_WARMUP_INIT,
    ADAFACTOR_WEIGHT_DECAY,
    ADAFACTOR_EXPERTS,
    ADAFACTOR_ROWS,
    ADAFACTOR_CHANNELS_LAST,
    ADAFACTOR_SEED
};

#define ADAFACTOR_ATTR_DEFS                                                                       \
    {.name = "decay_rate", .type = ATTR_FLOAT, .value = {.f = -0.8}},                             \
        {.name = "clip_threshold", .type = ATTR_FLOAT, .value = {.f = 1}},                        \
        {.name = "epsilon1", .type = ATTR_FLOAT, .value = {.f = 1e-30}},                          \
        {.name = "epsilon2", .type = ATTR_FLOAT, .value = {.f = 1e-3}},                           \
        {.name = "scale_parameter", .type = ATTR_BOOL},                                           \
        {.name = "relative_step", .type = ATTR_BOOL}, {.name = "warmup_init", .type = ATTR_BOOL}, \
        {.name = "weight_decay", .type = ATTR_FLOAT}, {.name = "experts", .type = ATTR_INT},      \
        {.name = "rows", .type = ATTR_INTS}, {.name = "channels_last", .type = ATTR_BOOL},        \
    {                                                                                             \
        .name = "seed", .type = ATTR_INT                                                          \
    }

enum { ADAFACTOR_V = 2, ADAFACTOR_LR, ADAFACTOR_STEP, ADAFACTOR_SCALE, ADAFACTOR_MASTER };

/* Which tensors the parameter holds. */
static inline struct param_tensors adafactor_tensors(const struct op_call *c)
{
    const struct attr *rows = &c->attrs[ADAFACTOR_ROWS];
    struct param_tensors k = {0};
    k.n_experts = call_int(c, ADAFACTOR_EXPERTS);
    k.n_pieces = rows->n_ints;
    k.channels_last = call_bool(c, ADAFACTOR_CHANNELS_LAST);
    for (int i = 0; i < rows->n_ints; i++)
        k.rows[i] = rows->ints[i];
    return k;
}

static inline struct factored_layout adafactor_layout(const struct op_call *c)
{
    const struct param_tensors k = adafactor_tensors(c);
    return factored_layout(&c->in[0].shape, &k);
}

/* The factored second moment, in the shape that the parameter's tensors ask for. */
static inline enum status need_factored(const struct op_call *c, int i)
{
    const struct param_tensors k = adafactor_tensors(c);
    const char *problem = factored_problem(&c->in[0].shape, &k);
    if (problem)
        return REJECT(c, "%s", problem);
    const struct shape shape = factored_shape(&c->in[0].shape, &k);
    TRY(need_float(c, i));
    TRY(need_shape(c, i, &shape));
    if (c->in[i].dtype != dtype_accumulator(c->in[i].dtype))
        return REJECT(c, "v must be f32 or f64, not %s", dtype_name(c->in[i].dtype));
    return OK;
}

/* Inputs param, grad, the factored second moment, lr, step, scale, and the attributes. */
static inline enum status need_adafactor(const struct op_call *c)
{
    TRY(need_float(c, 0));
    TRY(need_like_param(c, 1));
    TRY(need_factored(c, ADAFACTOR_V));
    TRY(need_number(c, ADAFACTOR_LR));
    TRY(need_step(c, ADAFACTOR_STEP));
    TRY(need_number(c, ADAFACTOR_SCALE));
    if (!(call_float(c, ADAFACTOR_DECAY_RATE) <= 0.0))
        return REJECT(c, "decay_rate must not be positive");
    if (!(call_float(c, ADAFACTOR_CLIP_THRESHOLD) > 0.0))
        return REJECT(c, "clip_threshold must be positive");
    if (!(call_float(c, ADAFACTOR_EPSILON1) >= 0.0 && call_float(c, ADAFACTOR_EPSILON2) >= 0.0 &&
          call_float(c, ADAFACTOR_WEIGHT_DECAY) >= 0.0))
        return REJECT(c, "epsilon1, epsilon2 and weight_decay must not be negative");
    return OK;
}

/* ---- gradient descent: attributes, and inputs up to scale ------------------------------------ */

#define SGD_ATTR_DEFS                             \
    {.name = "weight_decay", .type = ATTR_FLOAT}, \
    {                                             \
        .name = "seed", .type = ATTR_INT          \
    }
#define SGD_MOMENTUM_ATTR_DEFS                                                                 \
    {.name = "momentum", .type = ATTR_FLOAT, .value = {.f = 0.9}},                             \
        {.name = "nesterov", .type = ATTR_BOOL}, {.name = "weight_decay", .type = ATTR_FLOAT}, \
    {                                                                                          \
        .name = "seed", .type = ATTR_INT                                                       \
    }
enum { SGD_WEIGHT_DECAY };
enum { SGD_MOMENTUM, SGD_NESTEROV, SGD_MOMENTUM_WEIGHT_DECAY };

/* Inputs param, grad, lr, step, scale. */
static inline enum status need_sgd(const struct op_call *c)
{
    TRY(need_float(c, 0));
    TRY(need_like_param(c, 1));
    TRY(need_number(c, 2));
    TRY(need_number(c, 4));
    TRY(need_step(c, 3));
    if (!(call_float(c, SGD_WEIGHT_DECAY) >= 0.0))
        return REJECT(c, "weight_decay must not be negative");
    return OK;
}

/* Inputs param, grad, buf, lr, step, scale. */
static inline enum status need_sgd_momentum(const struct op_call *c)
{
    TRY(need_float(c, 0));
    TRY(need_like_param(c, 1));
    TRY(need_like_param(c, 2));
    TRY(need_number(c, 3));
    TRY(need_number(c, 5));
    TRY(need_step(c, 4));
    if (!(call_float(c, SGD_MOMENTUM) >= 0.0 && call_float(c, SGD_MOMENTUM_WEIGHT_DECAY) >= 0.0))
        return REJECT(c, "momentum and weight_decay must not be negative");
    return OK;
}

/* ---- Lion: all its ops have the same attributes ---------------------------------------------- */

enum { LION_BETA1, LION_BETA2, LION_WEIGHT_DECAY, LION_SEED };

#define LION_ATTR_DEFS                                               \
    {.name = "beta1", .type = ATTR_FLOAT, .value = {.f = 0.9}},      \
        {.name = "beta2", .type = ATTR_FLOAT, .value = {.f = 0.99}}, \
        {.name = "weight_decay", .type = ATTR_FLOAT},                \
    {                                                                \
        .name = "seed", .type = ATTR_INT                             \
    }

/* Inputs param, grad, the momentum (codes and scales, or numbers), lr, step, scale, and the
 * attributes; *lr: the input that lr is. */
static inline enum status need_lion(const struct op_call *c, int *lr)
{
    bool coded = call_has(c, 2) && c->in[2].dtype == DTYPE_U8;
    *lr = coded ? 4 : 3;
    TRY(need_float(c, 0));
    TRY(need_like_param(c, 1));
    TRY(coded ? need_coded(c, 2) : need_like_param(c, 2));
    TRY(need_number(c, *lr));
    TRY(need_step(c, *lr + 1));
    TRY(need_number(c, *lr + 2));
    double beta1 = call_float(c, LION_BETA1), beta2 = call_float(c, LION_BETA2);
    if (!(beta1 >= 0.0 && beta1 < 1.0 && beta2 >= 0.0 && beta2 < 1.0))
        return REJECT(c, "beta1 is %g and beta2 %g; both must be in [0, 1)", beta1, beta2);
    if (!(call_float(c, LION_WEIGHT_DECAY) >= 0.0))
        return REJECT(c, "weight_decay must not be negative");
    return OK;
}

/* ---- Muon ------------------------------------------------------------------------------------ */

enum { MUON_MOMENTUM, MUON_NESTEROV, MUON_DTYPE };

/* Inputs grad, the momentum (codes and scales, or numbers), scale, and the attributes; *dtype: of
 * the direction that comes out. */
static inline enum status need_muon_momentum(const struct op_call *c, bool coded, enum dtype *dtype)
{
    TRY(need_float(c, 0));
    TRY(coded ? need_coded(c, 1) : need_like_param(c, 1));
    TRY(need_number(c, coded ? 3 : 2));
    double momentum = call_float(c, MUON_MOMENTUM);
    if (!(momentum >= 0.0 && momentum < 1.0))
        return REJECT(c, "momentum is %g; it must be in [0, 1)", momentum);
    *dtype = (enum dtype)call_int(c, MUON_DTYPE);
    *dtype = *dtype == DTYPE_NONE ? c->in[0].dtype : *dtype;
    if (!dtype_is_float(*dtype))
        return REJECT(c, "dtype must be a float");
    return OK;
}

#ifdef __cplusplus
}
#endif
#endif
