/* gpu.h: what there is to know about a GPU before it is opened, and one clear line each for the
 * reasons why none can be used. The lines are plain text made here, so that they are tested without
 * a GPU; src/device/cuda finds out which of them is true.
 */
#ifndef SNUG_DEVICE_GPU_H
#define SNUG_DEVICE_GPU_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

struct gpu_facts {
    bool built;             /* this build has CUDA */
    char architectures[64]; /* that it has code for, as CMake writes them: "80-real 90" */
    int driver_cuda;        /* the newest CUDA the driver knows, 13000 is 13.0; 0: no driver */
    int runtime_cuda;       /* the CUDA of this build */
    char driver[32];        /* the driver's own version, "580.95.05"; "": not known */
    char cublaslt[16], cudnn[16], nccl[16]; /* versions; "": not there */
    int n_gpus, index;                      /* how many there are; which one the rest is about */
    char name[96];                          /* "": there is none */
    int major, minor;                       /* compute capability */
    bool bf16, tf32;                        /* in its tensor cores */
};

/* Which GPUs there are and what this build brings; needs no GPU and makes no context. */
void gpu_look(struct gpu_facts *f, int index);
/* The driver's own version and NCCL's: takes longer. */
void gpu_look_closer(struct gpu_facts *f);

/* Why a GPU cannot be used. */
enum gpu_problem {
    GPU_NOT_BUILT,
    GPU_NO_DRIVER,
    GPU_OLD_DRIVER,
    GPU_BROKEN_DRIVER, /* the kernel's part and the library are of different versions */
    GPU_NONE,
    GPU_NO_SUCH_INDEX,
    GPU_NO_CODE, /* neither machine code nor PTX for its architecture */
    GPU_NO_PTX,  /* PTX, but a driver that cannot compile it */
    GPU_TAKEN,   /* in exclusive use by another process, or forbidden */
};

/* ERR_UNSUPPORTED with a line that names the reason and the fix. */
enum status gpu_refuse(enum gpu_problem problem, const struct gpu_facts *f) MUST_CHECK;

/* Memory of the GPU that recordings of so many instructions take beyond the context. */
int64_t gpu_recording_bytes(int64_t n_instrs);

#ifdef __cplusplus
}
#endif
#endif
