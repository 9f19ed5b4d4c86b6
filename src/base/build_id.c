#include "base/build_id.h"

#include <link.h>
#include <stdio.h>
#include <string.h>

enum { MOST_BYTES = BUILD_ID_TEXT / 2 - 1 };

static size_t padded(size_t n)
{
    return (n + 3) / 4 * 4;
}

/* Notes follow each other: sizes, type, name, contents, the last two padded to four bytes. */
static int find_in(const unsigned char *notes, size_t n_bytes, char *out)
{
    ElfW(Nhdr) h;
    for (size_t at = 0; at + sizeof(h) <= n_bytes;) {
        memcpy(&h, notes + at, sizeof(h));
        size_t name = at + sizeof(h), contents = name + padded(h.n_namesz);
        at = contents + padded(h.n_descsz);
        if (at > n_bytes)
            return 0;
        if (h.n_type != NT_GNU_BUILD_ID || h.n_namesz != 4 || memcmp(notes + name, "GNU", 4) != 0)
            continue;
        size_t n = h.n_descsz < MOST_BYTES ? h.n_descsz : MOST_BYTES;
        for (size_t i = 0; i < n; i++)
            (void)snprintf(out + 2 * i, 3, "%02x", notes[contents + i]);
        return n > 0;
    }
    return 0;
}

/* The first object is the program itself: 1 ends the walk there. */
static int visit(struct dl_phdr_info *info, size_t size, void *out)
{
    (void)size;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *h = &info->dlpi_phdr[i];
        const void *notes = (const void *)(info->dlpi_addr + h->p_vaddr);
        if (h->p_type == PT_NOTE && find_in(notes, h->p_memsz, out))
            break;
    }
    return 1;
}

const char *build_id(char out[BUILD_ID_TEXT])
{
    (void)snprintf(out, BUILD_ID_TEXT, "unknown");
    (void)dl_iterate_phdr(visit, out);
    return out;
}
