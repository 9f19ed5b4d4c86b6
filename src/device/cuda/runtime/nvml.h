/* nvml.h: what the driver says about a GPU's memory and who holds it (NVML, loaded at run
 * time: the program needs no driver to start). */
#ifndef SNUG_DEVICE_CUDA_RUNTIME_NVML_H
#define SNUG_DEVICE_CUDA_RUNTIME_NVML_H

#include <stddef.h>

#include "device/room.h"

#ifdef __cplusplus
extern "C" {
#endif

struct cuda_nvml;

/* The GPU at a PCI address; NULL when NVML is not there or does not answer. */
struct cuda_nvml *cuda_nvml_open(const char *pci_bus_id);
void cuda_nvml_close(struct cuda_nvml *n); /* NULL is fine */

/* The driver's version, "580.95.05"; "" when it is not known. */
void cuda_nvml_driver(struct cuda_nvml *n, char *out, size_t n_out);
/* Bytes of the GPU in use, by whomever; -1 when the driver does not say (n NULL). */
int64_t cuda_nvml_used_bytes(struct cuda_nvml *n);
/* total_bytes and free_bytes of the room; false when the driver does not say. */
bool cuda_nvml_memory(struct cuda_nvml *n, struct device_room *room);
/* Bytes of the GPU this process holds; -1 when the driver does not say (n NULL, containers). */
int64_t cuda_nvml_process_bytes(struct cuda_nvml *n);
/* Fills sees_processes and the holders. A process with a context that is not itself in the
 * driver's list looks at it from another process namespace: the numbers there mean nothing here,
 * and nobody is named. The same is assumed where one of them cannot be found here. */
void cuda_nvml_holders(struct cuda_nvml *n, struct device_room *room);

#ifdef __cplusplus
}
#endif
#endif
