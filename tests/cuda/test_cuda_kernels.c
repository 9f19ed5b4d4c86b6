/* The CUDA kernel lists as they are planned with, which needs no GPU: without its libraries what
 * only they know is declined, and the last kernel of every list takes every call of the op's
 * samples but those in f64. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "support/gpu.h"
#include "support/law.h"

#ifdef SNUG_HAVE_CUDA

#include "device/cuda/cuda_kernels.h"

static const struct kernel_env no_gpu = {.n_threads = 1};

static bool has_f64(const struct op_call *c)
{
    for (int i = 0; i < c->n_in; i++) {
        if (c->in[i].dtype == DTYPE_F64)
            return true;
    }
    for (int i = 0; i < c->n_out; i++) {
        if (c->out[i].dtype == DTYPE_F64)
            return true;
    }
    return false;
}

static bool is_of_a_library(const struct kernel *k)
{
    return strcmp(k->name, "cudnn") == 0 || strcmp(k->name, "cublaslt") == 0;
}

static void check_case(struct law_case *c)
{
    const struct kernel *k = cuda_kernels(c->op);
    struct tensor in[SAMPLE_MAX_INPUTS], out[MAX_OUTPUTS];
    struct op_call call;
    node_call(c->g, graph_node(c->g, 0), in, out, &call);
    if (!k || has_f64(&call))
        return;
    for (; k->name; k++) {
        const char *why = k->declines ? k->declines(&call, &no_gpu) : NULL;
        if (!why && is_of_a_library(k))
            law_failed(c, "%s takes a call without its library", k->name);
        if (!k[1].name && why)
            law_failed(c, "the last kernel, %s, declines: %s", k->name, why);
    }
}

static void every_list_ends_with_a_kernel_that_takes_every_call(void **state)
{
    (void)state;
    struct law_report r = {0};
    law_for_each_case(&r, LAW_ALL, check_case);
    law_report_finish(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_list_ends_with_a_kernel_that_takes_every_call),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#else

int main(void)
{
    print_message("skipped: built without CUDA\n");
    return GPU_SKIPPED;
}

#endif
