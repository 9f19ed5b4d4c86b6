/* conv_plan.h: one cuDNN plan of a convolution or a gradient of one, for one shape and GPU.
 *
 * Tensors are [N, C, D, H, W] with the strides of channels last. A plan is made for one handle and
 * runs on any stream; it holds host memory only.
 */
#ifndef SNUG_DEVICE_CUDA_CONVOLUTION_CONV_PLAN_H
#define SNUG_DEVICE_CUDA_CONVOLUTION_CONV_PLAN_H

#include "device/cuda/cuda_libraries.h"
#include "device/cuda/declared/convolution.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How the graph of a plan looks: what it does itself of the work around the convolution. */
enum conv_form {
    CONV_WHOLE,   /* all of it: the bias is added, the result is added to what the output holds */
    CONV_BARE,    /* the convolution alone: the rest is done after it */
    CONV_ROUNDED, /* a weight gradient alone, in the type of its factors: it is widened after it */
};

struct conv_plan;

struct conv_wish {
    enum conv_form form;
    int64_t most_bytes; /* of workspace */
    bool tf32;          /* f32 may be rounded to 10 bits of fraction */
    int n_passed_over;  /* plans that would do, but are not wanted: to look at every one */
};

/* A plan of `shape`, which is a part's if a call runs in parts. ERR_UNSUPPORTED when cuDNN has
 * none; the message says why. */
enum status conv_plan_new(struct conv_plan **plan, cudnnHandle_t handle,
                          const struct conv_shape *shape, const struct conv_wish *wish) MUST_CHECK;
void conv_plan_free(struct conv_plan *plan);
int64_t conv_plan_bytes(const struct conv_plan *plan); /* of workspace */
enum conv_form conv_plan_form(const struct conv_plan *plan);
const struct conv_shape *conv_plan_shape(const struct conv_plan *plan);

/* Device pointers of what the plan reads and makes; the output is the one that the kind names. */
struct conv_tensors {
    void *x, *w, *y;
    void *bias; /* NULL: none */
};
/* Runs on the handle's stream. */
enum status conv_plan_run(const struct conv_plan *plan, cudnnHandle_t handle,
                          const struct conv_tensors *t, void *workspace) MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
