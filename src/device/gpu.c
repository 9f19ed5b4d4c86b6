#include "device/gpu.h"

#include "base/compiler.h"

static enum status refuse_driver(const struct gpu_facts *f)
{
    return FAIL(ERR_UNSUPPORTED,
                "the NVIDIA driver knows CUDA %d.%d, this build needs %d.%d: update the driver, or "
                "build with an older CUDA toolkit",
                f->driver_cuda / 1000, f->driver_cuda % 1000 / 10, f->runtime_cuda / 1000,
                f->runtime_cuda % 1000 / 10);
}

static enum status refuse_code(const struct gpu_facts *f)
{
    return FAIL(ERR_UNSUPPORTED,
                "this build has no code for %s (compute capability %d.%d), only for %s: build with "
                "-DSNUG_CUDA_ARCHITECTURES=%d%d",
                f->name, f->major, f->minor, f->architectures, f->major, f->minor);
}

enum status gpu_refuse(enum gpu_problem problem, const struct gpu_facts *f)
{
    switch (problem) {
    case GPU_NOT_BUILT:
        return FAIL(ERR_UNSUPPORTED,
                    "this build has no CUDA; build with -DSNUG_CUDA=ON, or use device: cpu");
    case GPU_NO_DRIVER:
        return FAIL(ERR_UNSUPPORTED, "no NVIDIA driver was found: install one, or use device: cpu");
    case GPU_OLD_DRIVER:
        return refuse_driver(f);
    case GPU_BROKEN_DRIVER:
        return FAIL(ERR_UNSUPPORTED, "the NVIDIA driver does not work (its parts are of different "
                                     "versions, or it is not running): reboot, or install it "
                                     "again");
    case GPU_NONE:
        return FAIL(ERR_UNSUPPORTED, "no NVIDIA GPU was found (CUDA_VISIBLE_DEVICES can hide "
                                     "them); use device: cpu");
    case GPU_NO_SUCH_INDEX:
        return FAIL(ERR_UNSUPPORTED, "there is no GPU %d: this machine has %d", f->index,
                    f->n_gpus);
    case GPU_NO_CODE:
        return refuse_code(f);
    case GPU_NO_PTX:
        return FAIL(ERR_UNSUPPORTED,
                    "this build has no machine code for %s (compute capability %d.%d), and the "
                    "driver cannot compile its PTX: build with -DSNUG_CUDA_ARCHITECTURES=%d%d, or "
                    "update the driver",
                    f->name, f->major, f->minor, f->major, f->minor);
    case GPU_TAKEN:
        return FAIL(ERR_UNSUPPORTED,
                    "%s is in exclusive use by another process: end it, or `nvidia-smi -c 0` "
                    "allows several",
                    f->name);
    }
    return FAIL(ERR_INTERNAL, "a GPU problem without words: %d", (int)problem);
}

/* ---- recordings ------------------------------------------------------------------------------ */

/* Measured on an H200 (CUDA 13): a node of an instantiated graph takes 3 to 4.2 KB of the GPU, and
 * an instruction is 1.1 to 1.6 nodes; long recordings, of 11 to 68 thousand instructions, take 2.0
 * to 2.7 KB of them in all. The context's figure has every kernel of ours loaded, of which a run
 * needs some: so much of a recording finds room in it. */
enum {
    SHORT_RECORDING = 8 << 10,
    INSTR_BYTES = 6 << 10,
    FURTHER_BYTES = 3 << 10,
    UNLOADED_BYTES = 24 << 20
};

int64_t gpu_recording_bytes(int64_t n_instrs)
{
    int64_t first = MIN(n_instrs, (int64_t)SHORT_RECORDING), further = n_instrs - first;
    int64_t n_bytes = first * INSTR_BYTES + further * FURTHER_BYTES - UNLOADED_BYTES;
    return MAX(n_bytes, (int64_t)0);
}
