#include "search/surroundings.h"

#include "base/alloc.h"
#include "base/host_memory.h"
#include "device/disk/disk.h"

void surroundings_read(struct surroundings *s, struct device *d)
{
    mem_trim(); /* what planning left behind does not stay */
    s->resident_bytes = MAX(process_resident() + process_code_left(), d->beside_bytes);
    s->peak_bytes = process_peak();
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
