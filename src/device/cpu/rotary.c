/* rotary.c: rotary position embedding of the query and key heads of a packed row. */
#include <math.h>

#include "device/cpu/cpu_kernels.h"
#include "device/cpu/cpu_ref.h"
#include "ops/layer_support.h"

static enum status reference(const struct kernel_ctx *x, const struct op_call *c)
{
    (void)x;
    struct qkv_dims d = qkv_dims_of(c, 0);
    int64_t half = d.head_dim / 2, n_all = d.heads + 2 * d.kv_heads;
    double scale = call_float(c, ROTARY_SCALE), sign = call_bool(c, ROTARY_INVERSE) ? -1.0 : 1.0;
    for (int64_t i = 0; i < d.batch * d.n_tokens * n_all; i++) {
        int64_t token = i / n_all % d.n_tokens, head = i % n_all;
        double position = call_has(c, 2) ? ref_get(&c->in[2], token) : (double)token;
        for (int64_t j = 0; j < half; j++) {
            int64_t at = i * d.head_dim + j;
            double a = ref_get(&c->in[0], at), b = ref_get(&c->in[0], at + half);
            double angle = sign * position * ref_get(&c->in[1], j);
            bool rotates = head < d.heads + d.kv_heads;
            double cosine = rotates ? scale * cos(angle) : 1.0;
            double sine = rotates ? scale * sin(angle) : 0.0;
            ref_set(&c->out[0], at, a * cosine - b * sine);
            ref_set(&c->out[0], at + half, b * cosine + a * sine);
        }
    }
    return OK;
}

const struct kernel cpu_kernels_rotary[] = {
    {"reference", NULL, NULL, reference},
    KERNEL_END,
};
