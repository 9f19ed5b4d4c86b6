/* temporary.c: see temporary.h. A table of fixed size, since a signal handler reads it: a slot is
 * claimed, filled, and only then shown. */
#include "base/temporary.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/compiler.h"

enum { N_SLOTS = 16, PATH_BYTES = 4096 };
enum { SLOT_FREE, SLOT_CLAIMED, SLOT_NOTED };

static struct slot {
    atomic_int state;
    char path[PATH_BYTES];
} slots[N_SLOTS];

void temporary_note(const char *path)
{
    size_t n = strlen(path);
    for (int i = 0; i < N_SLOTS && n < PATH_BYTES; i++) {
        int expected = SLOT_FREE;
        if (!atomic_compare_exchange_strong(&slots[i].state, &expected, SLOT_CLAIMED))
            continue;
        memcpy(slots[i].path, path, n + 1);
        atomic_store(&slots[i].state, SLOT_NOTED);
        return;
    }
}

void temporary_forget(const char *path)
{
    for (int i = 0; i < N_SLOTS; i++) {
        if (atomic_load(&slots[i].state) == SLOT_NOTED && strcmp(slots[i].path, path) == 0) {
            atomic_store(&slots[i].state, SLOT_FREE);
            return;
        }
    }
}

/* readdir allocates, so the system is asked directly. */
static void remove_files_in(int folder)
{
    struct {
        uint64_t inode;
        int64_t next;
        uint16_t n_bytes;
        uint8_t type;
        char name[]; /* NUL-terminated */
    } const *entry;
    _Alignas(8) char buffer[4096];
    for (long n; (n = syscall(SYS_getdents64, folder, buffer, sizeof(buffer))) > 0;) {
        for (long at = 0; at < n; at += entry->n_bytes) {
            entry = (const void *)(buffer + at);
            (void)unlinkat(folder, entry->name, 0);
        }
    }
}

static void remove_one(const char *path)
{
    int folder = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (folder < 0) {
        (void)unlink(path);
        return;
    }
    remove_files_in(folder);
    (void)close(folder);
    (void)rmdir(path);
}

void temporary_remove_all(void)
{
    for (int i = 0; i < N_SLOTS; i++) {
        if (atomic_load(&slots[i].state) == SLOT_NOTED)
            remove_one(slots[i].path);
    }
}
