#include "engine/parameter_table.h"

enum status parameter_table(const struct model *model, struct graph **graph, struct model_graph *io)
{
    const struct model_request smallest = {
        .purpose = MODEL_EVAL, .batch = 1, .seq_len = 1, .dtype = DTYPE_F32};
    struct builder b;
    *graph = NULL;
    TRY(graph_new(graph, "parameters"));
    builder_init(&b, *graph);
    TRY(model_build(model, &b, &smallest, io));
    return builder_status(&b);
}
