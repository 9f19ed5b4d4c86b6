/* open.cu: finding a GPU, saying what is wrong when there is none to be had, and making the
 * libraries ready. */
#include <cuda.h>
#include <stdio.h>

#include "base/alloc.h"
#include "base/machine.h"
#include "device/cuda/attention/sdpa.h"
#include "device/cuda/convolution/conv_cudnn.h"
#include "device/cuda/products/gemm.h"
#include "device/cuda/runtime/state.cuh"
#include "device/gpu.h"

/* Enough for a context, the libraries' own memory and the scratch of measurements. */
#define OPENING_BYTES ((int64_t)2 << 30)

/* The driver keeps a stack for every thread the GPU can hold at once, 1 KiB each unless it is told
 * otherwise: 260 MiB on an H200. A kernel that needs more than this gets it nevertheless: its code
 * says how much. */
#define STACK_BYTES 16

static __global__ void probe(int *out)
{
    if (out)
        *out = 1;
}

/* What an error of the runtime means to the user; false: nothing particular. */
static bool known_problem(cudaError_t e, enum gpu_problem *problem)
{
    switch (e) {
    case cudaErrorInsufficientDriver:
        *problem = GPU_OLD_DRIVER;
        return true;
    case cudaErrorNoDevice:
        *problem = GPU_NONE;
        return true;
    case cudaErrorSystemDriverMismatch:
    case cudaErrorSystemNotReady:
        *problem = GPU_BROKEN_DRIVER;
        return true;
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorInvalidDeviceFunction:
    case cudaErrorInvalidKernelImage:
        *problem = GPU_NO_CODE;
        return true;
    case cudaErrorUnsupportedPtxVersion:
    case cudaErrorInvalidPtx:
    case cudaErrorJitCompilerNotFound:
    case cudaErrorJitCompilationDisabled:
        *problem = GPU_NO_PTX;
        return true;
    case cudaErrorDevicesUnavailable:
    case cudaErrorDeviceAlreadyInUse:
        *problem = GPU_TAKEN;
        return true;
    default:
        return false;
    }
}

/* A failure on the way to an open device, in the words of gpu.h where it has some. */
static enum status open_try(cudaError_t e, const struct gpu_facts *f)
{
    enum gpu_problem problem;
    if (e == cudaSuccess)
        return OK;
    (void)cudaGetLastError();
    if (known_problem(e, &problem))
        return gpu_refuse(problem, f);
    CUDA_TRY(e);
    return OK;
}

static enum status check_driver(struct gpu_facts *f, int index)
{
    int n = 0;
    gpu_look(f, index);
    if (f->driver_cuda == 0)
        return gpu_refuse(GPU_NO_DRIVER, f);
    TRY(open_try(cudaGetDeviceCount(&n), f));
    if (n == 0)
        return gpu_refuse(GPU_NONE, f);
    if (index < 0 || index >= n)
        return gpu_refuse(GPU_NO_SUCH_INDEX, f);
    return OK;
}

/* What plans ask of the libraries, they are asked here. */
static const struct gpu_answers library_answers = {
    .product_declines = cuda_gemm_declines,
    .product_workspace = cuda_gemm_workspace,
    .attention_declines = cuda_sdpa_declines,
    .attention_workspace = cuda_sdpa_workspace,
    .convolution_declines = cuda_conv_declines,
};

static enum status read_properties(struct cuda_libraries *l)
{
    struct cudaDeviceProp p;
    CUDA_TRY(cudaGetDeviceProperties(&p, l->device));
    l->gpu.n_multiprocessors = p.multiProcessorCount;
    l->gpu.major = p.major;
    l->gpu.minor = p.minor;
    l->gpu.shared_per_block_optin = (int)p.sharedMemPerBlockOptin;
    l->gpu.shared_per_multiprocessor = (int)p.sharedMemPerMultiprocessor;
    l->gpu.threads_per_multiprocessor = p.maxThreadsPerMultiProcessor;
    l->gpu.l2_bytes = p.l2CacheSize;
    l->gpu.memory_bytes = (int64_t)p.totalGlobalMem;
    l->gpu.answers = &library_answers;
    return OK;
}

/* This process has a context on the GPU already (a device that was opened before). */
static bool has_context(int index)
{
    CUresult (*get)(CUdevice *, int);
    CUresult (*state_of)(CUdevice, unsigned int *, int *);
    CUdevice gpu;
    unsigned int flags;
    int active = 0;
    if (!cuda_driver_function("cuDeviceGet", &get) ||
        !cuda_driver_function("cuDevicePrimaryCtxGetState", &state_of) ||
        get(&gpu, index) != CUDA_SUCCESS || state_of(gpu, &flags, &active) != CUDA_SUCCESS)
        return true; /* who knows */
    return active != 0;
}

/* The context, with a kernel in it: the GPU is ours to use and this build has code for it. */
static enum status open_context(const struct gpu_facts *f)
{
    struct cudaFuncAttributes attributes;
    bool ours = !has_context(f->index);
    TRY(open_try(cudaSetDevice(f->index), f));
    TRY(open_try(cudaFree(NULL), f));
    if (ours) /* and not of a program that we are a part of */
        TRY(open_try(cudaDeviceSetLimit(cudaLimitStackSize, STACK_BYTES), f));
    return open_try(cudaFuncGetAttributes(&attributes, reinterpret_cast<const void *>(probe)), f);
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

static void name_identity(struct device *d, const struct gpu_facts *f)
{
    char driver[32];
    cuda_nvml_driver(cuda_state_of(d)->nvml, driver, sizeof(driver));
    (void)snprintf(d->identity, sizeof(d->identity),
                   "%.60s, driver %s %d, CUDA %d, cuBLASLt %s, cuDNN %s", f->name, driver,
                   f->driver_cuda, f->runtime_cuda, f->cublaslt, f->cudnn);
}

static enum status open_all(struct device *d, const struct gpu_facts *f, const char *cache_folder)
{
    char bus[32], memory[BYTES_TEXT];
    struct cuda_state *s = cuda_state_of(d);
    struct cuda_libraries *l = &s->libraries;
    l->device = f->index;
    l->cache_folder = cache_folder ? mem_strdup(cache_folder) : NULL;
    if (cache_folder && !l->cache_folder)
        return FAIL(ERR_MEMORY, "out of memory for the device");
    CUDA_TRY(cudaDeviceGetPCIBusId(bus, sizeof(bus), f->index));
    (void)snprintf(d->address, sizeof(d->address), "%s", bus);
    s->nvml = cuda_nvml_open(bus);
    s->used_before = has_context(f->index) ? -1 : cuda_nvml_used_bytes(s->nvml);
    TRY(read_properties(l));
    TRY(open_context(f));
    TRY(open_queues(s));
    TRY(open_libraries(l));
    d->env.n_threads = usable_processors();
    TRY(team_new(&d->env.team, d->env.n_threads));
    d->env.libraries = l;
    d->env.gpu = &l->gpu;
    d->lacks_bf16 = l->gpu.major < 8;
    d->cache_bytes = l->gpu.l2_bytes;
    name_identity(d, f);
    (void)snprintf(d->description, sizeof(d->description), "%.60s, %s, compute capability %d.%d",
                   f->name, format_bytes(memory, l->gpu.memory_bytes), l->gpu.major, l->gpu.minor);
    return cuda_figures(d);
}

/* Opening failed: a GPU that others have filled makes every call fail in its own words; this says
 * what it is about. Other failures keep theirs. */
static enum status explain(struct cuda_state *s, enum status status)
{
    struct device_room room = {};
    if (status == ERR_UNSUPPORTED || !cuda_nvml_memory(s->nvml, &room))
        return status;
    int64_t own = cuda_own_bytes(s);
    room.own_bytes = own > 0 ? own : 0;
    if (room_available(&room) >= OPENING_BYTES)
        return status;
    struct str text = {};
    cuda_nvml_holders(s->nvml, &room);
    room_add_text(&room, &text);
    status = FAIL(ERR_FIT,
                  "does not fit: opening the GPU (context, libraries, measurements) takes up to 2 "
                  "GiB, but %s. End what holds the rest, or use device: cpu",
                  str_text(&text));
    str_release(&text);
    return status;
}

enum status device_open_cuda_cached(struct device *d, int index, const char *cache_folder)
{
    struct gpu_facts f;
    *d = (struct device){};
    TRY(check_driver(&f, index));
    struct cuda_state *s = (struct cuda_state *)mem_calloc(1, sizeof(*s));
    if (!s)
        return FAIL(ERR_MEMORY, "out of memory for the device");
    d->ops = &cuda_ops;
    d->state = s;
    enum status status = open_all(d, &f, cache_folder);
    if (status != OK) {
        status = explain(s, status);
        device_close(d);
    }
    return status;
}
