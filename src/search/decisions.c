#include "search/decisions.h"

void decisions_apply(const struct decisions *d, struct plan *plan, const struct graph *g)
{
    if (d->recompute_cheap)
        plan_recompute_cheap(plan, g);
    for (int b = 0; b < plan->n_blocks; b++) {
        if (block_set_has(&d->recompute, b))
            plan_recompute_block(plan, g, b);
    }
}
