/* facts.cu: what there is to know about the GPUs of this machine without opening one. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "device/cuda/runtime/nvml.h"
#include "device/cuda/support/support.cuh"
#include "device/device.h"

/* The architectures of this build, as CMake writes them. */
#ifndef SNUG_CUDA_CODE
#define SNUG_CUDA_CODE "?"
#endif

int device_count_cuda(void)
{
    int n = 0;
    if (cudaGetDeviceCount(&n) != cudaSuccess) {
        (void)cudaGetLastError();
        return 0;
    }
    return n;
}

/* 91300 is 9.13.0. */
static void write_version(char *out, size_t n_out, int64_t version)
{
    (void)snprintf(out, n_out, "%d.%d.%d", (int)(version / 10000), (int)(version / 100 % 100),
                   (int)(version % 100));
}

/* NCCL is not part of this build; its version tells whether the machine has it. */
static void look_for_nccl(struct gpu_facts *f)
{
    int (*get_version)(int *) = NULL;
    int version = 0;
    void *library = dlopen("libnccl.so.2", RTLD_LAZY | RTLD_LOCAL);
    if (!library)
        return;
    void *symbol = dlsym(library, "ncclGetVersion");
    memcpy(&get_version, &symbol, sizeof(symbol));
    if (get_version && get_version(&version) == 0)
        write_version(f->nccl, sizeof(f->nccl), version);
    (void)dlclose(library);
}

static void look_at_gpu(struct gpu_facts *f)
{
    struct cudaDeviceProp p;
    if (cudaGetDeviceProperties(&p, f->index) != cudaSuccess)
        return;
    (void)snprintf(f->name, sizeof(f->name), "%.*s", (int)sizeof(f->name) - 1, p.name);
    f->major = p.major;
    f->minor = p.minor;
    f->bf16 = f->tf32 = p.major >= 8;
}

void gpu_look(struct gpu_facts *f, int index)
{
    *f = (struct gpu_facts){};
    f->built = true;
    f->index = index;
    f->n_gpus = device_count_cuda();
    (void)snprintf(f->architectures, sizeof(f->architectures), "%s", SNUG_CUDA_CODE);
    (void)cudaDriverGetVersion(&f->driver_cuda);
    (void)cudaRuntimeGetVersion(&f->runtime_cuda);
    write_version(f->cublaslt, sizeof(f->cublaslt), (int64_t)cublasLtGetVersion());
    write_version(f->cudnn, sizeof(f->cudnn), (int64_t)cudnnGetVersion());
    if (index >= 0 && index < f->n_gpus)
        look_at_gpu(f);
    (void)cudaGetLastError();
}

void gpu_look_closer(struct gpu_facts *f)
{
    char bus[32];
    look_for_nccl(f);
    if (f->name[0] == '\0' || cudaDeviceGetPCIBusId(bus, sizeof(bus), f->index) != cudaSuccess)
        return;
    struct cuda_nvml *nvml = cuda_nvml_open(bus);
    cuda_nvml_driver(nvml, f->driver, sizeof(f->driver));
    cuda_nvml_close(nvml);
}
