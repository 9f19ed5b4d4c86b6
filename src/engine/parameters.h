/* parameters.h: how parameters come to a device, also to one whose memory the host cannot address.
 */
#ifndef SNUG_ENGINE_PARAMETERS_H
#define SNUG_ENGINE_PARAMETERS_H

#include "device/device.h"
#include "model/model.h"
#include "run/stage.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Parameters and where they lie. */
struct parameter_list {
    const struct model_param *params;
    int n_params;
    const struct tensor *tensors;     /* in the order of params */
    const struct tensor_stage *stage; /* how to reach them */
};

/* Values from a Hugging Face model folder, or drawn from the seed when folder is NULL. */
enum status parameters_load(const struct parameter_list *list, const char *folder, uint64_t seed,
                            struct team *team) MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
