/* aside.c: plans and programs that wait while others are tried: to emit and place them once more
 * would take as long as the trial did. */
#include <string.h>

#include "search/workload.h"

/* What is the stage's own whatever is decided stays with it; the rest changes hands. */
static void hand_over(struct stage *from, struct stage *to)
{
    to->group = from->group;
    to->plan = from->plan;
    to->program = from->program;
    to->prediction = from->prediction;
    from->plan = (struct plan){0};
    from->program = NULL;
    from->prediction = (struct prediction){0};
    if (from->group > 1) {
        to->graph = from->graph;
        from->graph = from->single;
        from->single = NULL;
        from->group = 1;
    }
}

enum status workload_set_aside(struct workload *w, struct set_aside *out)
{
    *out = (struct set_aside){.n_stages = w->n_stages};
    TRY(mem_try_array(&out->stages, (size_t)MAX(w->n_stages, 1), sizeof(*out->stages)));
    for (int i = 0; i < w->n_stages; i++)
        hand_over(&w->stages[i], &out->stages[i]);
    out->storage = w->storage;
    storage_init(&w->storage);
    memcpy(out->n_bytes, w->n_bytes, sizeof(w->n_bytes));
    return OK;
}

void workload_bring_back(struct workload *w, struct set_aside *x)
{
    for (int i = 0; i < w->n_stages; i++) {
        struct stage *to = &w->stages[i], *from = &x->stages[i];
        stage_clear(to);
        to->group = from->group;
        to->plan = from->plan;
        to->program = from->program;
        to->prediction = from->prediction;
        if (from->group > 1) {
            to->single = to->graph;
            to->graph = from->graph;
        }
    }
    storage_release(&w->storage);
    w->storage = x->storage;
    memcpy(w->n_bytes, x->n_bytes, sizeof(w->n_bytes));
    mem_free(x->stages);
    *x = (struct set_aside){0};
}

void set_aside_release(struct set_aside *x)
{
    for (int i = 0; x->stages && i < x->n_stages; i++) {
        struct stage *s = &x->stages[i];
        prediction_release(&s->prediction);
        program_free(s->program);
        plan_release(&s->plan);
        graph_free(s->graph);
    }
    if (x->stages)
        storage_release(&x->storage);
    mem_free(x->stages);
    *x = (struct set_aside){0};
}
