/* film_into_batch_norm.c:
 *
 *     y, .. = batch_norm_activation(x, gamma, beta)
 *     z = film(y, scale, shift)   ==>   z, .. = batch_norm_activation(x, gamma, beta, scale, shift)
 *
 * when z alone reads y, and scale and shift are there before y is made. Not behind silu: the
 * gradient of scale has no shorter way there than a third sum.
 */
#include "graph/builder.h"
#include "rewrite/rewrite_internal.h"

enum { FILM_SCALE = 1, FILM_SHIFT = 2, NORM_SCALE = 3, NORM_SHIFT = 4 };

static bool is_there(const struct rewriting *r, const struct node *film, int i, node_id before)
{
    return !rewrite_has_input(film, i) || rewrite_exists_before(r->g, film->in[i], before);
}

enum status rewrite_film_into_batch_norm(struct rewriting *r, node_id k, bool *applied)
{
    const struct node *film = graph_node(r->g, k);
    if (film->op != OP_film)
        return OK;
    node_id source = rewrite_sole_source(r, film->in[0], OP_batch_norm_activation, k);
    if (source == NODE_NONE || !is_there(r, film, FILM_SCALE, source) ||
        !is_there(r, film, FILM_SHIFT, source))
        return OK;
    const struct node *norm = graph_node(r->g, source);
    if (rewrite_has_input(norm, NORM_SCALE) || node_attr(norm, "silu")->i)
        return OK;
    TRY(rewrite_set_input(r, source, NORM_SCALE, film->in[FILM_SCALE]));
    if (rewrite_has_input(film, FILM_SHIFT))
        TRY(rewrite_set_input(r, source, NORM_SHIFT, film->in[FILM_SHIFT]));
    rewrite_absorb(r, source, k);
    *applied = true;
    return OK;
}
