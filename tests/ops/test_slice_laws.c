/* An op that can be had in slices (op_def.granule, by_rows) gives in slices the bits of the whole,
 * whatever their sizes: over op_table x samples x kernels. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "graph/slice.h"
#include "support/law.h"

enum { WORKSPACE_ALIGN = 64 };

/* ---- the table ------------------------------------------------------------------------------- */

/* Tensors have the elements, or one for each granule; of rows, what is not whole has the shape. */
static void check_tensors(struct law_case *c)
{
    const struct node *n = graph_node(c->g, 0);
    int64_t granule = node_granule(c->g, n), all = node_sliceable(c->g, n);
    if (granule == 0)
        return;
    if (c->def->granule > 0 && c->def->by_rows)
        law_failed(c, "slices are of granules or of rows, not of both");
    for (int k = 0; k < n->n_in + n->n_out; k++) {
        value_id v = k < n->n_in ? n->in[k] : n->out[k - n->n_in];
        bool whole = k < n->n_in && (c->def->whole_inputs >> k & 1u);
        int64_t own = v == VALUE_NONE ? all : shape_elems(&graph_value(c->g, v)->shape);
        if (!whole && own != all && own != (all + granule - 1) / granule)
            law_failed(c, "operand %d has %lld elements beside %lld", k, (long long)own,
                       (long long)all);
    }
}

static void tensors_of_sliceable_ops_divide_as_their_row_says(void **state)
{
    struct law_report r = {.only = *state};
    law_for_each_case(&r, LAW_ALL, check_tensors);
    law_report_finish(&r);
}

/* ---- the same bits --------------------------------------------------------------------------- */

static struct tensor operand_in(const struct law_case *c, const struct eval *e, struct slice s,
                                int k, struct tensor t)
{
    const struct node *n = graph_node(c->g, 0);
    value_id v = k < n->n_in ? n->in[k] : n->out[k - n->n_in];
    if (v != VALUE_NONE)
        t.data = (char *)eval_tensor(e, v).data + slice_bytes(c->g, n, s, k).at;
    return t;
}

static void run_slice(const struct law_case *c, const struct eval *e, struct slice s)
{
    const struct node *n = graph_node(c->g, 0);
    struct tensor in[SAMPLE_MAX_INPUTS], out[MAX_OUTPUTS];
    struct kernel_ctx x = {.env = {.n_threads = 1}};
    struct op_call call;
    node_call_slice(c->g, n, s, in, out, &call);
    for (int k = 0; k < n->n_in; k++)
        in[k] = operand_in(c, e, s, k, in[k]);
    for (int k = 0; k < n->n_out; k++)
        out[k] = operand_in(c, e, s, n->n_in + k, out[k]);
    int64_t n_workspace = c->kernel->workspace ? c->kernel->workspace(&call, &x.env) : 0;
    char *memory = mem_calloc(1, (size_t)n_workspace + WORKSPACE_ALIGN);
    x.workspace = memory + WORKSPACE_ALIGN - (uintptr_t)memory % WORKSPACE_ALIGN;
    if (c->kernel->run(&x, &call) != OK)
        law_failed(c, "%s", status_message());
    mem_free(memory);
}

/* A kernel that makes rows otherwise than the whole says so; all others take every slice. */
static bool takes_slices(const struct law_case *c)
{
    const struct node *n = graph_node(c->g, 0);
    struct tensor in[SAMPLE_MAX_INPUTS], out[MAX_OUTPUTS];
    struct kernel_env env = {.n_threads = 1};
    struct op_call call;
    node_call_slice(c->g, n, (struct slice){0, MIN(node_granule(c->g, n), node_sliceable(c->g, n))},
                    in, out, &call);
    const char *why = c->kernel->declines ? c->kernel->declines(&call, &env) : NULL;
    if (why && !c->def->by_rows)
        law_failed(c, "declines a slice: %s", why);
    return !why;
}

/* All of it, in slices of so many granules. */
static struct eval *run_slices(const struct law_case *c, int64_t n_granules)
{
    const struct node *n = graph_node(c->g, 0);
    struct eval *e = NULL;
    if (eval_new(&e, c->g, &(struct eval_options){.poison = 0xFF}) != OK) {
        law_failed(c, "%s", status_message());
        return NULL;
    }
    law_case_fill(c, e);
    int64_t all = node_sliceable(c->g, n), most = n_granules * node_granule(c->g, n);
    for (int64_t first = 0; first < all; first += most) {
        struct slice s = {first, MIN(most, all - first)};
        if (!slice_is_valid(c->g, n, s))
            law_failed(c, "elements %lld to %lld are no slice", (long long)first,
                       (long long)(first + s.n));
        run_slice(c, e, s);
    }
    return e;
}

static void compare_slices(struct law_case *c)
{
    static const int64_t sizes[] = {1, 2, 3, 5, 64, 300};
    const struct node *n = graph_node(c->g, 0);
    if (!takes_slices(c))
        return;
    struct eval *whole =
        law_run(c, &(struct eval_options){.kernel = c->kernel->name, .poison = 0xFF});
    /* Under sanitizers large samples are not taken apart one by one: that is the same code, ten
     * thousand times. */
    size_t from = SNUG_ASAN && c->enlarged ? 4 : 0;
    for (size_t i = from; whole && i < ARRAY_LEN(sizes); i++) {
        struct eval *parts = run_slices(c, sizes[i]);
        for (int o = 0; parts && o < n->n_out; o++) {
            struct tensor x = eval_tensor(whole, n->out[o]), y = eval_tensor(parts, n->out[o]);
            if (memcmp(x.data, y.data, (size_t)tensor_bytes(&x)) != 0)
                law_failed(c, "output %d differs in slices of %lld granules", o,
                           (long long)sizes[i]);
        }
        eval_free(parts);
    }
    eval_free(whole);
}

static void slice_case(struct law_case *c)
{
    if (node_sliceable(c->g, graph_node(c->g, 0)) > 0)
        law_for_each_kernel(c, compare_slices);
}

static void slices_give_the_bits_of_the_whole(void **state)
{
    struct law_report r = {.only = *state};
    law_for_each_case(&r, LAW_ALL, slice_case);
    law_report_finish(&r);
}

int main(int argc, char **argv)
{
    char *only = argc > 1 ? argv[1] : NULL;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(tensors_of_sliceable_ops_divide_as_their_row_says, only),
        cmocka_unit_test_prestate(slices_give_the_bits_of_the_whole, only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
