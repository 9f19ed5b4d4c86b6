/* adapted_experts.h: adapters (adapter.h) beside the experts of a mixture. */
#ifndef SNUG_MODEL_ADAPTED_EXPERTS_H
#define SNUG_MODEL_ADAPTED_EXPERTS_H

#include "model/parts.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One projection of all experts: the tensors "<experts>.<number>.<part>" of each are the rows of
 * its matrix, part by part and as many of each (`parts_of` ends with NULL). */
struct expert_adapters {
    const char *name;    /* ours, of the projection */
    const char *experts; /* "mlp.experts" */
    const char *const *parts_of;
    int base; /* in the table of parameters: [n_experts, n_out, n_in] */
    int64_t n_experts, n_met, n_in, n_out;
};

/* Rows in the order of their experts, and what the projection made of them. */
struct expert_rows {
    value_id x, offsets, y;
};

/* y with what the adapters add that p->m->adapter names; y itself where there are none. */
value_id adapted_experts(struct parts *p, const struct expert_rows *r,
                         const struct expert_adapters *s);

#ifdef __cplusplus
}
#endif
#endif
