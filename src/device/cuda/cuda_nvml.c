#include "device/cuda/cuda_nvml.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"

/* The part of NVML used, as its documentation gives it (the header is not part of every toolkit
 * installation). */
typedef void *nvml_device;
struct nvml_process {
    unsigned int pid;
    unsigned long long used_bytes; /* all ones: not available */
    unsigned int gpu_instance, compute_instance;
};
enum { NVML_OK = 0, MAX_PROCESSES = 128 };

struct cuda_nvml {
    void *library;
    int (*init)(void);
    int (*shutdown)(void);
    int (*find)(const char *pci_bus_id, nvml_device *device);
    int (*processes)(nvml_device device, unsigned int *count, struct nvml_process *list);
    nvml_device device;
    struct nvml_process list[MAX_PROCESSES];
};

/* dlsym gives a data pointer; ISO C wants function pointers copied out of it. */
static bool load(struct cuda_nvml *n, const char *name, void *function_pointer)
{
    void *symbol = dlsym(n->library, name);
    memcpy(function_pointer, &symbol, sizeof(symbol));
    return symbol != NULL;
}

struct cuda_nvml *cuda_nvml_open(const char *pci_bus_id)
{
    struct cuda_nvml *n = mem_calloc(1, sizeof(*n));
    if (!n)
        return NULL;
    n->library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    bool there = n->library && load(n, "nvmlInit_v2", &n->init) &&
                 load(n, "nvmlShutdown", &n->shutdown) &&
                 load(n, "nvmlDeviceGetHandleByPciBusId_v2", &n->find) &&
                 load(n, "nvmlDeviceGetComputeRunningProcesses_v3", &n->processes);
    if (there && n->init() == NVML_OK) {
        if (n->find(pci_bus_id, &n->device) == NVML_OK)
            return n;
        (void)n->shutdown();
    }
    if (n->library)
        (void)dlclose(n->library);
    mem_free(n);
    return NULL;
}

void cuda_nvml_close(struct cuda_nvml *n)
{
    if (!n)
        return;
    (void)n->shutdown();
    (void)dlclose(n->library);
    mem_free(n);
}

static unsigned int list_processes(struct cuda_nvml *n)
{
    unsigned int count = MAX_PROCESSES;
    if (!n || n->processes(n->device, &count, n->list) != NVML_OK)
        return 0;
    return count;
}

int64_t cuda_nvml_process_bytes(struct cuda_nvml *n)
{
    unsigned int count = list_processes(n);
    for (unsigned int i = 0; i < count; i++) {
        if (n->list[i].pid == (unsigned int)getpid() && n->list[i].used_bytes < 1ull << 62)
            return (int64_t)n->list[i].used_bytes;
    }
    return -1;
}

void cuda_nvml_others(struct cuda_nvml *n, struct str *out)
{
    unsigned int count = list_processes(n), listed = 0;
    for (unsigned int i = 0; i < count && listed < 4; i++) {
        const struct nvml_process *p = &n->list[i];
        char bytes[BYTES_TEXT];
        if (p->pid == (unsigned int)getpid() || p->used_bytes >= 1ull << 62)
            continue;
        str_addf(out, "%sprocess %u holds %s", listed++ ? ", " : "", p->pid,
                 format_bytes(bytes, (int64_t)p->used_bytes));
    }
}
