#include "ops/op_support.h"

static const struct attr_def attrs[] = {
    {.name = "length", .type = ATTR_INT, .required = true},
    {.name = "start", .type = ATTR_INT},
};

static enum status infer(const struct op_call *c)
{
    int64_t length = call_int(c, 0), start = call_int(c, 1);
    if (length < 1 || length > INT32_MAX)
        return REJECT(c, "length %lld", (long long)length);
    if (start < INT32_MIN || start > INT32_MAX - length)
        return REJECT(c, "%lld numbers from %lld do not fit i32", (long long)length,
                      (long long)start);
    out_set(c, 0, DTYPE_I32, shape_of(1, length));
    return OK;
}

static const struct op_sample samples[] = {
    {.text = "{length=1}"},
    {.text = "{length=37, start=-5}"},
};
static const char *const rejects[] = {
    "{length=0}",
    "{length=5, start=2147483645}",
    "{length=5, start=-3000000000}",
};

const struct op_def op_def_iota = {
    .name = "iota",
    .synopsis = "y[i] = start + i, i < length, as i32",
    .min_in = 0,
    .max_in = 0,
    .n_out = 1,
    .attrs = attrs,
    .n_attrs = ARRAY_LEN(attrs),
    .infer = infer,
    .no_grad = true,
    OP_NO_ACCUMULATE,
    .recompute = RECOMPUTE_CHEAP,
    .samples = samples,
    .n_samples = ARRAY_LEN(samples),
    .rejects = rejects,
    .n_rejects = ARRAY_LEN(rejects),
};
