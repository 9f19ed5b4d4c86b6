#include "graph/factored.h"

#include <stddef.h>

/* The shape of what one expert has. */
static struct shape without_experts(const struct shape *s, const struct param_tensors *k)
{
    struct shape own = *s;
    if (!k || k->n_experts == 0)
        return own;
    own.rank--;
    for (int i = 0; i < own.rank; i++)
        own.dim[i] = s->dim[i + 1];
    return own;
}

const char *factored_problem(const struct shape *s, const struct param_tensors *k)
{
    if (k->n_experts != 0 && (s->rank < 2 || s->dim[0] != k->n_experts))
        return "the first axis is not as long as there are experts";
    struct shape own = without_experts(s, k);
    if (k->channels_last && own.rank < 4)
        return "channels come after two axes that are a matrix, and one at least before";
    if (k->n_pieces == 0)
        return NULL;
    if (own.rank < 1 || own.rank > 2)
        return "pieces are vectors or matrices";
    int64_t left = own.dim[0];
    for (int i = 0; i < k->n_pieces; i++) {
        if (k->rows[i] < 1 || k->rows[i] > left)
            return "pieces have at least one row, and no more than there are";
        left -= k->rows[i];
    }
    return left == 0 ? NULL : "some rows are of no piece";
}

struct factored_layout factored_layout(const struct shape *s, const struct param_tensors *k)
{
    struct shape own = without_experts(s, k);
    struct factored_layout l = {.factored = own.rank >= 2,
                                .n_experts = k && k->n_experts ? k->n_experts : 1,
                                .n_stacks = 1,
                                .n_rows = shape_elems(&own),
                                .n_columns = 1,
                                .n_inner = 1,
                                .n_pieces = 1};
    if (l.factored) {
        int last = own.rank - 1;
        if (k && k->channels_last)
            l.n_inner = own.dim[last--];
        l.n_rows = own.dim[last - 1];
        l.n_columns = own.dim[last];
        l.n_stacks = shape_outer(&own, last - 1);
    }
    l.first_row[1] = l.n_rows;
    if (k && k->n_pieces)
        l.n_pieces = k->n_pieces;
    for (int i = 0; k && i < k->n_pieces; i++)
        l.first_row[i + 1] = l.first_row[i] + k->rows[i];
    return l;
}

struct shape factored_shape(const struct shape *s, const struct param_tensors *k)
{
    struct factored_layout l = factored_layout(s, k);
    if (!l.factored)
        return *s;
    return shape_of(2, factored_all_stacks(&l), (l.n_rows + l.n_pieces * l.n_columns) * l.n_inner);
}
