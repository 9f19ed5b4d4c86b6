/* load.cu: the machine code of all our kernels, loaded at once.
 *
 * The runtime loads a kernel when it is first launched, and the context grows by it. What a process
 * holds beside its arenas is to be known before the first step, so the device asks for all of them
 * (only ours: the libraries bring more code than any run uses). Each source file has an anchor
 * (support.cuh); through it the driver names the other kernels of the file. A driver that
 * cannot (before CUDA 12.5) loads lazily, as it would have.
 */
#include <cuda.h>

#include "base/alloc.h"
#include "base/log.h"
#include "device/cuda/runtime/state.cuh"

/* The anchors of all files, laid side by side by the linker. */
extern "C" const void *const __start_snug_cuda_files[];
extern "C" const void *const __stop_snug_cuda_files[];

struct driver {
    CUresult (*library_of)(CUlibrary *, CUkernel);
    CUresult (*count)(unsigned int *, CUlibrary);
    CUresult (*list)(CUkernel *, unsigned int, CUlibrary);
    CUresult (*function_of)(CUfunction *, CUkernel);
    CUresult (*load)(CUfunction);
};

static bool find_driver(struct driver *d)
{
    return cuda_driver_function("cuKernelGetLibrary", &d->library_of) &&
           cuda_driver_function("cuLibraryGetKernelCount", &d->count) &&
           cuda_driver_function("cuLibraryEnumerateKernels", &d->list) &&
           cuda_driver_function("cuKernelGetFunction", &d->function_of) &&
           cuda_driver_function("cuFuncLoad", &d->load);
}

/* How many kernels of the anchor's file were loaded. */
static int load_file(const struct driver *d, const void *anchor)
{
    cudaKernel_t kernel = NULL;
    CUlibrary library = NULL;
    unsigned int n = 0;
    int n_loaded = 0;
    if (cudaGetKernel(&kernel, anchor) != cudaSuccess ||
        d->library_of(&library, (CUkernel)kernel) != CUDA_SUCCESS ||
        d->count(&n, library) != CUDA_SUCCESS || n == 0)
        return 0;
    CUkernel *kernels = (CUkernel *)mem_calloc(n, sizeof(*kernels));
    if (kernels && d->list(kernels, n, library) == CUDA_SUCCESS) {
        for (unsigned int i = 0; i < n; i++) {
            CUfunction function = NULL;
            n_loaded += d->function_of(&function, kernels[i]) == CUDA_SUCCESS &&
                        d->load(function) == CUDA_SUCCESS;
        }
    }
    mem_free(kernels);
    return n_loaded;
}

void cuda_load_kernels(struct cuda_state *s)
{
    struct driver d;
    int n_kernels = 0;
    if (s->kernels_loaded)
        return;
    s->kernels_loaded = true;
    if (find_driver(&d)) {
        for (const void *const *p = __start_snug_cuda_files; p < __stop_snug_cuda_files; p++)
            n_kernels += load_file(&d, *p);
    }
    (void)cudaGetLastError();
    log_debug("%d kernels loaded", n_kernels);
}
