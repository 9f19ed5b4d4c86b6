#include "device/cuda/runtime/nvml.h"

#include <dlfcn.h>
#include <stdio.h>
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
struct nvml_memory {
    unsigned long long total_bytes, free_bytes, used_bytes;
};
enum { NVML_OK = 0, MAX_PROCESSES = 128 };

typedef int list_function(nvml_device device, unsigned int *count, struct nvml_process *list);

struct cuda_nvml {
    void *library;
    int (*init)(void);
    int (*shutdown)(void);
    int (*find)(const char *pci_bus_id, nvml_device *device);
    int (*memory)(nvml_device device, struct nvml_memory *memory);
    int (*driver)(char *version, unsigned int length); /* may be NULL */
    list_function *compute, *graphics;                 /* graphics may be NULL */
    nvml_device device;
    unsigned int n_processes;
    struct nvml_process list[MAX_PROCESSES];
};

/* dlsym gives a data pointer; ISO C wants function pointers copied out of it. */
static bool load(struct cuda_nvml *n, const char *name, void *function_pointer)
{
    void *symbol = dlsym(n->library, name);
    memcpy(function_pointer, &symbol, sizeof(symbol));
    return symbol != NULL;
}

static bool load_all(struct cuda_nvml *n)
{
    (void)load(n, "nvmlSystemGetDriverVersion", &n->driver);
    (void)load(n, "nvmlDeviceGetGraphicsRunningProcesses_v3", &n->graphics);
    return load(n, "nvmlInit_v2", &n->init) && load(n, "nvmlShutdown", &n->shutdown) &&
           load(n, "nvmlDeviceGetHandleByPciBusId_v2", &n->find) &&
           load(n, "nvmlDeviceGetMemoryInfo", &n->memory) &&
           load(n, "nvmlDeviceGetComputeRunningProcesses_v3", &n->compute);
}

struct cuda_nvml *cuda_nvml_open(const char *pci_bus_id)
{
    struct cuda_nvml *n = mem_calloc(1, sizeof(*n));
    if (!n)
        return NULL;
    n->library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (n->library && load_all(n) && n->init() == NVML_OK) {
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

void cuda_nvml_driver(struct cuda_nvml *n, char *out, size_t n_out)
{
    out[0] = '\0';
    if (n && n->driver && n->driver(out, (unsigned int)n_out) != NVML_OK)
        out[0] = '\0';
}

/* ---- memory ---------------------------------------------------------------------------------- */

bool cuda_nvml_memory(struct cuda_nvml *n, struct device_room *room)
{
    struct nvml_memory m;
    if (!n || n->memory(n->device, &m) != NVML_OK)
        return false;
    room->total_bytes = (int64_t)m.total_bytes;
    room->free_bytes = (int64_t)m.free_bytes;
    return true;
}

int64_t cuda_nvml_used_bytes(struct cuda_nvml *n)
{
    struct device_room room;
    return cuda_nvml_memory(n, &room) ? room.total_bytes - room.free_bytes : -1;
}

/* ---- processes ------------------------------------------------------------------------------- */

static void add_list(struct cuda_nvml *n, list_function *list)
{
    unsigned int count = MAX_PROCESSES - n->n_processes;
    if (list && list(n->device, &count, n->list + n->n_processes) == NVML_OK)
        n->n_processes += count;
}

static bool is_known(const struct nvml_process *p)
{
    return p->used_bytes < 1ull << 62;
}

static void list_processes(struct cuda_nvml *n)
{
    n->n_processes = 0;
    add_list(n, n->compute);
    add_list(n, n->graphics);
}

int64_t cuda_nvml_process_bytes(struct cuda_nvml *n)
{
    if (!n)
        return -1;
    list_processes(n);
    for (unsigned int i = 0; i < n->n_processes; i++) {
        if (n->list[i].pid == (unsigned int)getpid() && is_known(&n->list[i]))
            return (int64_t)n->list[i].used_bytes;
    }
    return -1;
}

static void read_name(unsigned int pid, char *out, size_t n_out)
{
    char path[64];
    out[0] = '\0';
    (void)snprintf(path, sizeof(path), "/proc/%u/comm", pid);
    FILE *f = fopen(path, "r");
    if (!f)
        return;
    if (!fgets(out, (int)n_out, f))
        out[0] = '\0';
    out[strcspn(out, "\n")] = '\0';
    (void)fclose(f);
}

/* A process may be in both lists (computing and drawing): it is named once. */
static bool is_listed(const struct device_room *room, unsigned int pid)
{
    for (int i = 0; i < room->n_holders; i++) {
        if (room->holders[i].pid == (int64_t)pid)
            return true;
    }
    return false;
}

void cuda_nvml_holders(struct cuda_nvml *n, struct device_room *room)
{
    bool self = cuda_nvml_process_bytes(n) >= 0, all_here = n != NULL;
    room->n_holders = 0;
    for (unsigned int i = 0; n && i < n->n_processes && room->n_holders < MAX_HOLDERS; i++) {
        const struct nvml_process *p = &n->list[i];
        if (p->pid == (unsigned int)getpid() || !is_known(p) || is_listed(room, p->pid))
            continue;
        struct device_holder *h = &room->holders[room->n_holders++];
        *h = (struct device_holder){.pid = p->pid, .n_bytes = (int64_t)p->used_bytes};
        read_name(p->pid, h->name, sizeof(h->name));
        all_here = all_here && h->name[0] != '\0';
    }
    room->sees_processes = self || (all_here && room->n_holders > 0);
    if (!room->sees_processes)
        room->n_holders = 0;
    room_sort(room);
}
