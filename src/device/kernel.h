/* kernel.h: one implementation of one op on one device.
 *
 * Per op and device there is a list, fastest first; the last takes every call the device has: on
 * the CPU the plain reference, in double arithmetic for every dtype. A kernel may decline a call
 * with a reason; the first that does not is in the program, is timed, and is what runs. So all that
 * a kernel cannot do is said in declines(), also what only a library knows: run() has no other
 * kernel to turn to, and what fails in it is an error. Kernels never allocate: they declare
 * workspace when the program is planned and receive it when it runs.
 *
 * When declines() and workspace() are asked, tensors have no memory yet. In a program every operand
 * begins at a multiple of ARENA_ALIGN (device.h), but those of slices, which begin at a granule of
 * the op (graph/slice.h); a kernel that cannot do without fails elsewhere.
 */
#ifndef SNUG_DEVICE_KERNEL_H
#define SNUG_DEVICE_KERNEL_H

#include "base/status.h"
#include "base/team.h"
#include "device/gpu_model.h"
#include "graph/op.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What is known about the machine when a program is planned. */
struct kernel_env {
    int n_threads;
    struct team *team; /* of as many; NULL: the caller is all there is */
    void *libraries;   /* handles of the device's libraries (cuBLASLt, cuDNN); NULL on the CPU */
    const struct gpu_model *gpu; /* NULL: there is none */
};

struct kernel_ctx {
    struct kernel_env env;
    void *workspace; /* 64-byte aligned, as many bytes as declared; contents undefined */
    void *queue;     /* the device's stream; NULL on the CPU */
};

struct kernel {
    const char *name;
    /* Why it does not take the call; NULL pointer or NULL result: it does. The answer is the same
     * every time, so that the program's check agrees with its planning. */
    const char *(*declines)(const struct op_call *c, const struct kernel_env *env);
    int64_t (*workspace)(const struct op_call *c, const struct kernel_env *env); /* NULL: none */
    enum status (*run)(const struct kernel_ctx *x, const struct op_call *c);
};

/* A kernel's run, to declare one by. */
typedef enum status kernel_run(const struct kernel_ctx *x, const struct op_call *c);

/* Runs n calls of kernels that name this function as their own (device_ops.batch), none of which
 * touches memory that another writes: the bits are those of n runs. For kernels without workspace.
 */
typedef enum status kernel_batch(const struct kernel_ctx *x, const struct op_call *const *calls,
                                 int n);

/* Ends a kernel list. */
#define KERNEL_END             \
    {                          \
        NULL, NULL, NULL, NULL \
    }

/* The first kernel of the list that accepts the call; NULL when none does (last reason in *why). */
const struct kernel *kernel_pick(const struct kernel *list, const struct op_call *c,
                                 const struct kernel_env *env, const char **why);

#ifdef __cplusplus
}
#endif
#endif
