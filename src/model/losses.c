#include "model/losses.h"

#include <string.h>

int losses_add_sum(struct builder *b, struct model_graph *m, const char *name, value_id value)
{
    BUG_ON(m->n_sums == MODEL_MOST_SUMS);
    if (b->status == OK && shape_elems(build_shape(b, value)) != 1)
        b->status = FAIL(ERR_INTERNAL, "'%s' is not one number", name);
    m->sums[m->n_sums] = (struct graph_output){name, value};
    return m->n_sums++;
}

void losses_add(struct builder *b, struct model_graph *m, const char *name, double weight,
                value_id sum, int count)
{
    BUG_ON(m->n_losses == MODEL_MOST_LOSSES);
    m->losses[m->n_losses++] = (struct model_loss){
        .weight = weight, .sum = losses_add_sum(b, m, name, sum), .count = count};
}

int losses_count(const struct model_graph *m)
{
    return m->losses[0].count;
}

double losses_total(const struct model_graph *m, const double *sums)
{
    double total = 0;
    for (int i = 0; i < m->n_losses; i++)
        total += m->losses[i].weight * sums[m->losses[i].sum];
    return total / sums[losses_count(m)];
}

double losses_mean(const struct model_graph *m, int i, const double *sums)
{
    return sums[m->losses[i].sum] / sums[m->losses[i].count];
}

const char *losses_name(const struct model_graph *m, int i)
{
    return m->sums[m->losses[i].sum].name;
}

bool losses_is_told(const struct model_graph *m, int i)
{
    return m->n_losses > 1 && strcmp(losses_name(m, i), "loss") != 0;
}
