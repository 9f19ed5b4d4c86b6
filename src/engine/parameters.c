#include "engine/parameters.h"

#include "io/weights.h"
#include "model/init.h"

enum status parameters_load(const struct parameter_list *list, const char *folder, uint64_t seed,
                            struct team *team)
{
    if (folder)
        return weights_load_staged(folder, list->params, list->n_params, list->tensors, list->stage,
                                   team);
    for (int i = 0; i < list->n_params; i++) {
        struct tensor t = stage_tensor(list->stage, &list->tensors[i]);
        TRY(init_param(&list->params[i], seed, t.dtype, 0, shape_elems(&t.shape), t.data, team));
        TRY(stage_store(list->stage, &list->tensors[i]));
    }
    return OK;
}
