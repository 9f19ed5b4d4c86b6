/* kept.c: rates between processes: a file of "FILE SYSTEM; how" and "BYTES RATE RATE ...". */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "base/kvfile.h"
#include "base/log.h"
#include "device/disk/disk_internal.h"

/* Which of the machine's disks it is, and what it is asked by. */
static bool make_key(const struct disk *d, char out[KVFILE_KEY_MOST])
{
    struct stat s;
    struct statvfs v;
    if (stat(d->folder, &s) != 0 || statvfs(d->folder, &v) != 0)
        return false;
    (void)snprintf(out, KVFILE_KEY_MOST, "%llx of %llu blocks of %lu; %s, %s",
                   (unsigned long long)s.st_dev, (unsigned long long)v.f_blocks, v.f_frsize,
                   disk_method(d), d->direct ? "direct" : "cached");
    return true;
}

/* False for what is no measurement: anybody may have written the file. */
static bool parse(const char *text, int64_t n_bytes, struct disk_rates *out)
{
    char words[7][40];
    double x[7];
    int end = 0;
    if (!text || sscanf(text, "%39s %39s %39s %39s %39s %39s %39s%n", words[0], words[1], words[2],
                        words[3], words[4], words[5], words[6], &end) != 7)
        return false;
    for (int i = 0; i < 7; i++) {
        bool may_be_zero = i >= 5;
        if (!parse_double(words[i], &x[i]) || !(x[i] >= 0) || x[i] > 1e18 ||
            (x[i] <= 0 && !may_be_zero))
            return false;
    }
    *out = (struct disk_rates){x[1], x[2], x[3], x[4], x[5], x[6]};
    return text[end] == '\0' && x[0] >= (double)n_bytes;
}

bool disk_rates_load(const struct disk *d, const char *folder, int64_t n_bytes,
                     struct disk_rates *out)
{
    char key[KVFILE_KEY_MOST];
    struct kvfile *file = NULL;
    if (!folder || !make_key(d, key) || kvfile_open_in(&file, folder, "disks") != OK)
        return false;
    bool found = parse(kvfile_get(file, key), n_bytes, out);
    kvfile_free(file);
    return found;
}

void disk_rates_store(const struct disk *d, const char *folder, int64_t n_bytes,
                      const struct disk_rates *r)
{
    char key[KVFILE_KEY_MOST], value[200];
    struct kvfile *file = NULL;
    if (!folder || !make_key(d, key) || kvfile_open_in(&file, folder, "disks") != OK)
        return;
    (void)snprintf(value, sizeof(value), "%lld %.6g %.6g %.6g %.6g %.6g %.6g", (long long)n_bytes,
                   r->read, r->written, r->read_in_turns, r->written_in_turns, r->read_s,
                   r->written_s);
    if (kvfile_put(file, key, value) != OK || kvfile_save(file) != OK)
        log_debug("the disk's rates are not kept: %s", status_message());
    kvfile_free(file);
}
