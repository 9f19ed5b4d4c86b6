/* cuda_open.cu: finding a GPU, saying what is wrong when there is none to be had, and making the
 * libraries ready. */
#include <sched.h>
#include <stdio.h>

#include "base/alloc.h"
#include "device/cuda/cuda_gemm.cuh"
#include "device/cuda/cuda_state.cuh"

static __global__ void probe(int *out)
{
    if (out)
        *out = 1;
}

int device_count_cuda(void)
{
    int n = 0;
    if (cudaGetDeviceCount(&n) != cudaSuccess) {
        (void)cudaGetLastError();
        return 0;
    }
    return n;
}

static enum status check_driver(int index)
{
    int n = 0, driver = 0;
    cudaError_t e = cudaGetDeviceCount(&n);
    (void)cudaGetLastError();
    (void)cudaDriverGetVersion(&driver);
    if (driver == 0)
        return FAIL(ERR_UNSUPPORTED, "no NVIDIA driver was found; use device: cpu");
    if (e == cudaErrorInsufficientDriver)
        return FAIL(ERR_UNSUPPORTED,
                    "the NVIDIA driver knows CUDA %d.%d, this build needs %d.%d: update the driver",
                    driver / 1000, driver % 1000 / 10, CUDART_VERSION / 1000,
                    CUDART_VERSION % 1000 / 10);
    if (e == cudaErrorNoDevice || (e == cudaSuccess && n == 0))
        return FAIL(ERR_UNSUPPORTED, "no NVIDIA GPU was found; use device: cpu");
    CUDA_TRY(e);
    if (index < 0 || index >= n)
        return FAIL(ERR_UNSUPPORTED, "there is no GPU %d: this machine has %d", index, n);
    return OK;
}

static enum status read_properties(struct cuda_libraries *l, char *name, size_t n_name)
{
    struct cudaDeviceProp p;
    CUDA_TRY(cudaGetDeviceProperties(&p, l->device));
    l->n_multiprocessors = p.multiProcessorCount;
    l->major = p.major;
    l->minor = p.minor;
    l->shared_per_block = (int)p.sharedMemPerBlock;
    l->shared_per_block_optin = (int)p.sharedMemPerBlockOptin;
    l->shared_per_multiprocessor = (int)p.sharedMemPerMultiprocessor;
    l->threads_per_multiprocessor = p.maxThreadsPerMultiProcessor;
    l->l2_bytes = p.l2CacheSize;
    l->memory_bytes = (int64_t)p.totalGlobalMem;
    (void)snprintf(name, n_name, "%.*s", (int)n_name - 1, p.name);
    return OK;
}

static enum status check_architecture(const struct cuda_libraries *l, const char *name)
{
    struct cudaFuncAttributes attributes;
    cudaError_t e = cudaFuncGetAttributes(&attributes, reinterpret_cast<const void *>(probe));
    if (e == cudaErrorNoKernelImageForDevice || e == cudaErrorInvalidDeviceFunction) {
        (void)cudaGetLastError();
        return FAIL(ERR_UNSUPPORTED,
                    "this build has no code for %s (compute capability %d.%d): build with "
                    "-DSNUG_CUDA_ARCHITECTURES=%d%d",
                    name, l->major, l->minor, l->major, l->minor);
    }
    CUDA_TRY(e);
    return OK;
}

static enum status open_queues(struct cuda_state *s)
{
    for (int q = 0; q < QUEUE_COUNT; q++) {
        CUDA_TRY(cudaStreamCreateWithFlags(&s->streams[q], cudaStreamNonBlocking));
        CUDA_TRY(cudaEventCreateWithFlags(&s->join[q], cudaEventDisableTiming));
    }
    CUDA_TRY(cudaEventCreateWithFlags(&s->fork, cudaEventDisableTiming));
    return OK;
}

static enum status open_libraries(struct cuda_libraries *l)
{
    CUBLAS_TRY(cublasLtCreate(&l->cublaslt));
    CUDNN_TRY(cudnnCreate(&l->cudnn));
    l->gemm_cache = cuda_gemm_cache_new();
    return l->gemm_cache ? OK : FAIL(ERR_MEMORY, "out of memory for the matrix products' cache");
}

static void name_identity(char *out, size_t n_out, const char *name)
{
    int driver = 0, runtime = 0;
    (void)cudaDriverGetVersion(&driver);
    (void)cudaRuntimeGetVersion(&runtime);
    (void)snprintf(out, n_out, "%s, driver %d, CUDA %d, cuBLASLt %zu, cuDNN %zu", name, driver,
                   runtime, cublasLtGetVersion(), cudnnGetVersion());
}

static int usable_processors(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof(set), &set) != 0)
        return 1;
    return CPU_COUNT(&set) > 1 ? CPU_COUNT(&set) : 1;
}

static enum status open_all(struct device *d, struct cuda_state *s, int index,
                            const char *cache_folder)
{
    char name[96], bus[32], memory[BYTES_TEXT];
    struct cuda_libraries *l = &s->libraries;
    l->device = index;
    l->cache_folder = cache_folder ? mem_strdup(cache_folder) : NULL;
    if (cache_folder && !l->cache_folder)
        return FAIL(ERR_MEMORY, "out of memory for the device");
    CUDA_TRY(cudaSetDevice(index));
    TRY(read_properties(l, name, sizeof(name)));
    TRY(check_architecture(l, name));
    CUDA_TRY(cudaDeviceGetPCIBusId(bus, sizeof(bus), index));
    s->nvml = cuda_nvml_open(bus);
    TRY(open_queues(s));
    TRY(open_libraries(l));
    d->env.n_threads = usable_processors();
    d->env.libraries = l;
    d->cache_bytes = l->l2_bytes;
    name_identity(d->identity, sizeof(d->identity), name);
    (void)snprintf(d->description, sizeof(d->description), "%s, %s, compute capability %d.%d", name,
                   format_bytes(memory, l->memory_bytes), l->major, l->minor);
    TRY(cuda_measure(d));
    s->context_bytes = cuda_ops.used_bytes(d);
    return OK;
}

enum status device_open_cuda_cached(struct device *d, int index, const char *cache_folder)
{
    *d = (struct device){};
    TRY(check_driver(index));
    struct cuda_state *s = (struct cuda_state *)mem_calloc(1, sizeof(*s));
    if (!s)
        return FAIL(ERR_MEMORY, "out of memory for the device");
    d->ops = &cuda_ops;
    d->state = s;
    enum status status = open_all(d, s, index, cache_folder);
    if (status != OK)
        device_close(d);
    return status;
}
