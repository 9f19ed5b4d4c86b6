#include "search/known.h"

#include "base/alloc.h"

void known_init(struct known *k)
{
    *k = (struct known){0};
    (void)pthread_mutex_init(&k->lock, NULL);
}

void known_release(struct known *k)
{
    vec_release(&k->programs);
    mem_free(k->slots);
    (void)pthread_mutex_destroy(&k->lock);
}

static struct known_program *find(const struct known *k, const struct known_program *p)
{
    for (size_t at = (size_t)p->plan; k->n_slots > 0; at++) {
        int32_t i = k->slots[at & (k->n_slots - 1)];
        if (i < 0)
            return NULL;
        struct known_program *x = &k->programs.items[i];
        if (x->plan == p->plan && x->group == p->group)
            return x;
    }
    return NULL;
}

static void take_slot(struct known *k, int32_t i)
{
    size_t at = (size_t)k->programs.items[i].plan;
    while (k->slots[at & (k->n_slots - 1)] >= 0)
        at++;
    k->slots[at & (k->n_slots - 1)] = i;
}

/* Half of the slots stay free. */
static enum status grow(struct known *k)
{
    const size_t n = MAX(2 * k->n_slots, (size_t)256);
    int32_t *slots;
    TRY(mem_try_array(&slots, n, sizeof(*slots)));
    mem_free(k->slots);
    k->slots = slots;
    k->n_slots = n;
    for (size_t i = 0; i < n; i++)
        slots[i] = -1;
    for (size_t i = 0; i < k->programs.n; i++)
        take_slot(k, (int32_t)i);
    return OK;
}

static enum status put(struct known *k, const struct known_program *p)
{
    struct known_program *before = find(k, p);
    if (before) {
        *before = *p;
        return OK;
    }
    if (2 * (k->programs.n + 1) > k->n_slots)
        TRY(grow(k));
    TRY(vec_push(&k->programs, *p));
    take_slot(k, (int32_t)k->programs.n - 1);
    return OK;
}

bool known_find(struct known *k, struct known_program *p)
{
    (void)pthread_mutex_lock(&k->lock);
    const struct known_program *found = find(k, p);
    if (found)
        *p = *found;
    (void)pthread_mutex_unlock(&k->lock);
    return found != NULL;
}

enum status known_put(struct known *k, const struct known_program *p)
{
    (void)pthread_mutex_lock(&k->lock);
    enum status status = put(k, p);
    (void)pthread_mutex_unlock(&k->lock);
    return status;
}
