/* coded_params.h: parameters that are kept as codes: made, stored and read back, one at a time
 * through host memory. */
#ifndef SNUG_ENGINE_CODED_PARAMS_H
#define SNUG_ENGINE_CODED_PARAMS_H

#include "engine/engine.h"
#include "io/weights.h"

#ifdef __cplusplus
extern "C" {
#endif

static inline bool param_is_coded(const struct model_param *p)
{
    return p->quantization.code != CODE_NONE;
}

/* A parameter's matrix, coded: number `stored` of a folder's, or drawn from the seed where there is
 * none (weights NULL). Released by the caller. */
struct coded_origin {
    const struct weights *weights;
    int stored;
    uint64_t seed;
    struct team *team;
};
enum status coded_param_make(struct coded_matrix *m, const struct model_param *p,
                             const struct coded_origin *o) MUST_CHECK;

/* The same into the engine's storage. */
enum status coded_param_load(struct engine *e, int i, const struct coded_origin *o) MUST_CHECK;
/* Parameter i of the engine as f32, [rows, columns]. */
enum status coded_param_read(struct engine *e, int i, float *x) MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
