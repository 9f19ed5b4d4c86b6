/* cuda_nvml.h: what the driver says about a GPU's memory and who holds it (NVML, loaded at run
 * time: the program needs no driver to start). */
#ifndef SNUG_DEVICE_CUDA_CUDA_NVML_H
#define SNUG_DEVICE_CUDA_CUDA_NVML_H

#include "base/str.h"

#ifdef __cplusplus
extern "C" {
#endif

struct cuda_nvml;

/* The GPU at a PCI address; NULL when NVML is not there or does not answer. */
struct cuda_nvml *cuda_nvml_open(const char *pci_bus_id);
void cuda_nvml_close(struct cuda_nvml *n); /* NULL is fine */

/* Bytes of the GPU this process holds; -1 when the driver does not say (n NULL, containers). */
int64_t cuda_nvml_process_bytes(struct cuda_nvml *n);
/* Appends "process 123 holds 4.0 GiB, ..." for the other processes the driver names; nothing when
 * it names none. */
void cuda_nvml_others(struct cuda_nvml *n, struct str *out);

#ifdef __cplusplus
}
#endif
#endif
