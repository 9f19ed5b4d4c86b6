#include "search/chain.h"

#include <math.h>

#include "base/alloc.h"
#include "base/compiler.h"

static size_t at(const struct chain *c, int link, int option)
{
    return (size_t)link * (size_t)c->n_options + (size_t)option;
}

static int64_t slots_of(const struct chain *c, int64_t n_bytes)
{
    return (n_bytes + c->slot_bytes - 1) / c->slot_bytes;
}

/* Of one link: for each number of slots that are left when it is reached, the best option. */
static void solve_link(const struct chain *c, int link, const double *after, double *best)
{
    unsigned char *choices = &c->choices[(size_t)link * (CHAIN_SLOTS + 1)];
    for (int slot = 0; slot <= CHAIN_SLOTS; slot++) {
        best[slot] = HUGE_VAL;
        choices[slot] = CHAIN_NONE;
    }
    for (int k = 0; k < c->n_each[link]; k++) {
        const struct link_option *o = &c->options[at(c, link, k)];
        int64_t kept = slots_of(c, o->n_kept), need = MAX(slots_of(c, o->n_need), kept);
        c->n_kept[at(c, link, k)] = kept;
        for (int64_t slot = need; slot <= CHAIN_SLOTS; slot++) {
            double cost = o->cost + after[slot - kept];
            if (cost < best[slot]) {
                best[slot] = cost;
                choices[slot] = (unsigned char)k;
            }
        }
    }
}

enum status chain_solve(struct chain *c, struct pool *pool)
{
    double *rows;
    size_t n = CHAIN_SLOTS + 1;
    c->slot_bytes = MAX(c->n_bytes / CHAIN_SLOTS, (int64_t)1);
    TRY(pool_try(pool, &c->n_kept, at(c, c->n_links, 0) * sizeof(*c->n_kept)));
    TRY(pool_try(pool, &c->choices, (size_t)c->n_links * n));
    TRY(mem_try_array(&rows, 2 * n, sizeof(*rows)));
    for (int link = c->n_links; link-- > 0;)
        solve_link(c, link, rows + (size_t)((link + 1) % 2) * n, rows + (size_t)(link % 2) * n);
    mem_free(rows);
    return OK;
}

bool chain_choose(const struct chain *c, int64_t n_bytes, int *chosen)
{
    int64_t slot = n_bytes < 0 ? -1 : MIN(n_bytes / c->slot_bytes, (int64_t)CHAIN_SLOTS);
    for (int link = 0; link < c->n_links; link++) {
        if (slot < 0)
            return false;
        int k = c->choices[(size_t)link * (CHAIN_SLOTS + 1) + (size_t)slot];
        if (k == CHAIN_NONE)
            return false;
        chosen[link] = k;
        slot -= c->n_kept[at(c, link, k)];
    }
    return true;
}
