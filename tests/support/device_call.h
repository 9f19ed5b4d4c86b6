/* device_call.h: one call of an op on a device with memory of its own, beside the CPU's reference:
 * host tensors, their copies on the device, and the comparison of what comes back.
 *
 * Failures of the device fail the test (cmocka assertions); wrong numbers are counted and printed.
 */
#ifndef SNUG_TESTS_DEVICE_CALL_H
#define SNUG_TESTS_DEVICE_CALL_H

#include <stdbool.h>
#include <stdint.h>

#include "device/device.h"
#include "device/kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { CALL_MAX_TENSORS = 6, CALL_MAX_ATTRS = 12 };

/* A call with its tensors in host memory. Bound to itself: do not move it. */
struct host_call {
    struct op_call call;
    struct tensor in[CALL_MAX_TENSORS], out[CALL_MAX_TENSORS];
    struct attr attrs[CALL_MAX_ATTRS];
};

void host_call_bind(struct host_call *h, enum op_id op, int n_in, int n_out);
void host_call_release(struct host_call *h); /* frees every tensor's memory */

/* Zeroes, and normal draws rounded to the dtype; free data with mem_free. */
struct tensor host_tensor(enum dtype dtype, struct shape shape);
struct tensor host_random(enum dtype dtype, struct shape shape, uint64_t seed);
/* n tensors of f64 shaped like t: what a reference writes to. */
void host_widen(struct tensor *wide, const struct tensor *t, int n);
/* t = wide, rounded. */
void host_narrow(struct tensor *t, const struct tensor *wide);
/* The CPU's reference on the call's inputs; outputs may be wider than the call says. */
void host_run_reference(const struct op_call *c);

/* A call on a device. */
struct device_call {
    struct device *device;
    struct op_call call;
    struct tensor in[CALL_MAX_TENSORS], out[CALL_MAX_TENSORS];
    void *workspace;
    int64_t n_workspace;
};

/* Inputs copied, outputs poisoned with NaN, the workspace that k wants. Do not move it. */
void device_call_open(struct device_call *g, struct device *d, const struct op_call *c,
                      const struct kernel *k);
void device_call_close(struct device_call *g);
enum status device_call_run(struct device_call *g, const struct kernel *k) MUST_CHECK;

void *device_call_alloc(struct device *d, int64_t n_bytes);
void device_call_free(struct device *d, void *p, int64_t n_bytes);

/* Runs f, some way to g's outputs, twice: every output within `limit` of `want` (largest error over
 * largest value), and the same bits the second time. Prints what differs under `label`. */
typedef enum status device_call_way(void *data);
bool device_call_agrees(struct device_call *g, device_call_way *f, void *data,
                        const struct tensor *want, double limit, const char *label);

/* Every kernel of the list that takes the call; returns how many were wrong. */
int device_call_check_kernels(struct device *d, const struct kernel *list, const struct op_call *c,
                              const struct tensor *want, double limit, const char *label);

#ifdef __cplusplus
}
#endif
#endif
