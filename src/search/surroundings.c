#include "search/surroundings.h"

#include "base/alloc.h"
#include "base/host_memory.h"
#include "device/disk/disk.h"

/* What a run on a card that is not here will hold is not what this process does, which depends on
 * how it came to its plans: the same settings have the same plan. */
#define ELSEWHERE_BYTES ((int64_t)32 << 20)

static void read_process(struct surroundings *s, const struct device *d)
{
    if (d->is_absent) {
        s->resident_bytes = ELSEWHERE_BYTES;
        s->peak_bytes = 0;
        return;
    }
    mem_trim(); /* what planning left behind does not stay */
    s->resident_bytes = MAX(process_resident() + process_code_left(), d->beside_bytes);
    s->peak_bytes = process_peak();
}

void surroundings_read(struct surroundings *s, struct device *d)
{
    read_process(s, d);
    if (!d->ops->room || d->ops->room(d, &s->room) != OK)
        s->room = (struct device_room){.total_bytes = INT64_MAX, .free_bytes = INT64_MAX};
    if (d->ops->memory_is_apart)
        room_of_host(&s->host);
    else
        s->host = s->room;
    s->disk = (struct device_room){.whose = "no offload_folder", .is_host = true};
    if (d->disk)
        disk_room(d->disk, &s->disk);
}
