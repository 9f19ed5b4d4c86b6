#include "report/names.h"

#include <string.h>

#include "base/compiler.h"
#include "base/hash.h"

/* The slot that holds the text, or the free one where it belongs. */
static size_t find_slot(const struct names *n, const char *text)
{
    size_t at = (size_t)hash_text(text) % n->n_slots;
    while (n->slots[at] && strcmp(n->texts.items[n->slots[at] - 1], text) != 0)
        at = (at + 1) % n->n_slots;
    return at;
}

static enum status grow(struct names *n)
{
    if (2 * (n->texts.n + 1) <= n->n_slots)
        return OK;
    int32_t *slots;
    size_t n_slots = MAX(4 * n->texts.n, (size_t)64);
    TRY(mem_try_array(&slots, n_slots, sizeof(*slots)));
    mem_free(n->slots);
    n->slots = slots;
    n->n_slots = n_slots;
    for (size_t i = 0; i < n->texts.n; i++)
        n->slots[find_slot(n, n->texts.items[i])] = (int32_t)i + 1;
    return OK;
}

enum status names_number(struct names *n, const char *text, int32_t *number)
{
    TRY(grow(n));
    size_t at = find_slot(n, text);
    if (!n->slots[at]) {
        const char *kept = pool_strdup(&n->pool, text);
        TRY(pool_status(&n->pool));
        TRY(vec_push(&n->texts, kept));
        n->slots[at] = (int32_t)n->texts.n;
    }
    *number = n->slots[at] - 1;
    return OK;
}

void names_release(struct names *n)
{
    mem_free(n->slots);
    vec_release(&n->texts);
    pool_release(&n->pool);
    *n = (struct names){0};
}
