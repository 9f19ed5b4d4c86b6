/* transfer.c: a range of a file to or from memory, in pieces of blocks.
 *
 *     file     | block | block | block | block | block |
 *     range        [...............................)
 *     pieces       first ............. , ..... last          cut where the file's pieces are
 *
 * Past the page cache a request is of whole blocks, from memory that is aligned. A piece that is
 * neither goes through the slot's buffer; where it is written, what its first and last block hold
 * beside it is read before. Pieces of a range share no block, so they may be under way together.
 */
#include <errno.h>
#include <string.h>

#include "device/disk/disk_internal.h"

/* A part of the range, and how it is moved. */
struct part {
    int64_t at, n_bytes; /* of the file */
    char *data;          /* in memory */
    bool bounced;        /* through the slot's buffer */
    struct piece piece;  /* the request */
};

static struct part next_part(const struct file_range *r, int64_t done)
{
    int64_t at = r->at + done;
    int64_t to_cut = DISK_PIECE - at % DISK_PIECE;
    struct part x = {
        .at = at, .n_bytes = MIN(r->n_bytes - done, to_cut), .data = (char *)r->data + done};
    bool whole = x.at % DISK_BLOCK == 0 && x.n_bytes % DISK_BLOCK == 0;
    x.bounced = r->file->direct && (!whole || (uintptr_t)x.data % DISK_BLOCK != 0);
    return x;
}

static enum status fail(const struct file_range *r, int64_t at, int64_t n_bytes, int error)
{
    const char *fix = error == ENOSPC || error == EDQUOT
                          ? "free space there, or name another offload_folder"
                          : "the disk may be failing: name another offload_folder";
    return FAIL(ERR_IO,
                "offload_folder: cannot %s %lld bytes at offset %lld of '%s': %s; %s. Checkpoints "
                "are as they were",
                r->write ? "write" : "read", (long long)n_bytes, (long long)at, r->file->name,
                strerror(error), fix);
}

/* What the first and the last block of a bounced write hold beside it. */
static int fill_edges(const struct part *x)
{
    const struct piece *all = &x->piece;
    int64_t end = x->at + x->n_bytes, last = all->at + all->n_bytes - DISK_BLOCK;
    struct piece edge = {.fd = all->fd, .n_bytes = DISK_BLOCK, .buffer = -1};
    int error = 0;
    if (x->at != all->at) {
        edge.at = all->at;
        edge.data = all->data;
        error = piece_run(&edge);
    }
    bool is_filled = x->at != all->at && last == all->at;
    if (error == 0 && end != all->at + all->n_bytes && !is_filled) {
        edge.at = last;
        edge.data = (char *)all->data + (last - all->at);
        error = piece_run(&edge);
    }
    return error;
}

/* Begins a part in a slot. */
static int begin(struct disk_port *p, const struct file_range *r, struct part *x, int slot)
{
    x->piece = (struct piece){.fd = r->file->fd,
                              .write = r->write,
                              .data = x->data,
                              .at = x->at,
                              .n_bytes = x->n_bytes,
                              .buffer = -1};
    if (x->bounced) {
        x->piece.at = x->at / DISK_BLOCK * DISK_BLOCK;
        x->piece.n_bytes = align_up(x->at + x->n_bytes, DISK_BLOCK) - x->piece.at;
        x->piece.data = port_buffer(p, slot);
        x->piece.buffer = slot;
    }
    if (x->bounced && r->write) {
        int error = fill_edges(x);
        if (error)
            return error;
        memcpy((char *)x->piece.data + (x->at - x->piece.at), x->data, (size_t)x->n_bytes);
    }
    port_start(p, slot, &x->piece);
    return 0;
}

/* What a request has left undone is done here; a read goes where it belongs. */
static int finish(const struct file_range *r, struct part *x, int64_t result)
{
    bool again = result == -EINTR || result == -EAGAIN;
    if (result < 0 && !again)
        return (int)-result;
    int64_t moved = MAX(result, (int64_t)0);
    if (moved < x->piece.n_bytes) {
        struct piece rest = x->piece;
        moved = moved / DISK_BLOCK * DISK_BLOCK;
        rest.at += moved;
        rest.n_bytes -= moved;
        rest.data = (char *)rest.data + moved;
        int error = piece_run(&rest);
        if (error)
            return error;
    }
    if (x->bounced && !r->write)
        memcpy(x->data, (char *)x->piece.data + (x->at - x->piece.at), (size_t)x->n_bytes);
    return 0;
}

enum status transfer(struct disk_port *p, const struct file_range *r)
{
    struct part parts[DISK_DEPTH];
    int free_slots[DISK_DEPTH], n_free = DISK_DEPTH, error = 0;
    int64_t done = 0, failed_at = 0, failed_bytes = 0;
    for (int i = 0; i < DISK_DEPTH; i++)
        free_slots[i] = i;
    while ((done < r->n_bytes && !error) || n_free < DISK_DEPTH) {
        if (done < r->n_bytes && !error && n_free > 0) {
            int slot = free_slots[n_free - 1];
            struct part *x = &parts[slot];
            *x = next_part(r, done);
            error = begin(p, r, x, slot);
            failed_at = x->at;
            failed_bytes = x->n_bytes;
            done += x->n_bytes;
            n_free -= error == 0;
            continue;
        }
        int slot;
        int64_t result;
        port_reap(p, &slot, &result);
        int now = finish(r, &parts[slot], result);
        if (now && !error) {
            error = now;
            failed_at = parts[slot].at;
            failed_bytes = parts[slot].n_bytes;
        }
        free_slots[n_free++] = slot;
    }
    return error ? fail(r, failed_at, failed_bytes, error) : OK;
}
