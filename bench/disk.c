/* The disk tier alone: GB/s of copies as programs make them, with memory and file that are aligned
 * as the disk's blocks are, and with memory that is not, which goes through buffers.
 *
 *     bench_disk FOLDER [MiB]
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/compiler.h"
#include "base/machine.h"
#include "device/device.h"
#include "device/disk/disk.h"

enum { COPY = 64 << 20, MEMORY = 256 << 20, BLOCK = 4096, N_ROUNDS = 3 };

static enum status time_pass(struct disk *d, struct memory *file, struct memory *memory,
                             bool writes, int64_t shift, double *rate)
{
    double start = now_s();
    for (int64_t at = 0; at < file->n_bytes; at += COPY) {
        struct place there = {file, at}, here = {memory, at % MEMORY + shift};
        TRY(disk_copy(d, writes ? there : here, writes ? here : there, COPY));
    }
    *rate = (double)file->n_bytes / (now_s() - start);
    return OK;
}

static enum status measure(struct disk *d, int64_t n_bytes)
{
    struct memory file = {.tier = TIER_DISK, .n_bytes = n_bytes};
    struct memory memory = {.tier = TIER_HOST, .n_bytes = MEMORY + BLOCK};
    memory.base = aligned_alloc(BLOCK, (size_t)memory.n_bytes);
    if (!memory.base)
        return FAIL(ERR_MEMORY, "out of memory");
    memset(memory.base, 1, (size_t)memory.n_bytes);
    enum status status = disk_alloc(d, n_bytes, &file.base);
    for (int i = 0; i < N_ROUNDS && status == OK; i++) {
        for (int k = 0; k < 4 && status == OK; k++) {
            bool writes = k % 2 == 0, aligned = k < 2;
            double rate;
            status = time_pass(d, &file, &memory, writes, aligned ? 0 : ARENA_ALIGN, &rate);
            if (status == OK)
                printf("%-8s %-8s %6.2f GB/s\n", writes ? "written" : "read",
                       aligned ? "aligned" : "buffered", rate / 1e9);
        }
    }
    free(memory.base);
    return status;
}

int main(int n_args, char **args)
{
    struct disk *d = NULL;
    int64_t n_bytes = (int64_t)COPY * (n_args > 2 ? MAX(atoi(args[2]) / 64, 1) : 32);
    if (n_args < 2)
        return fprintf(stderr, "usage: bench_disk FOLDER [MiB]\n"), 2;
    enum status status = disk_open(&d, args[1]);
    if (status == OK)
        status = measure(d, n_bytes);
    if (status != OK)
        fprintf(stderr, "%s\n", status_message());
    disk_close(d);
    return status != OK;
}
