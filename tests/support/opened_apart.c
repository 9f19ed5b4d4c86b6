/* opened_apart.c: programs which open the CPU device through the library get one whose memory is
 * apart while they ask for it. Linked only into those named in CMakeLists.txt. */
#include "base/status.h"
#include "support/apart_device.h"

/* build/snug-apart, the program as it is, always gets one. */
#ifndef OPENS_APART
#define OPENS_APART false
#endif
bool cpu_opens_apart = OPENS_APART;

enum status __real_device_open_cpu_cached(struct device *d, int n_threads,
                                          const char *cache_folder);
enum status __wrap_device_open_cpu_cached(struct device *d, int n_threads,
                                          const char *cache_folder);

/* The linker puts it in the place of device_open_cpu_cached (--wrap). */
enum status __wrap_device_open_cpu_cached(struct device *d, int n_threads, const char *cache_folder)
{
    TRY(__real_device_open_cpu_cached(d, n_threads, cache_folder));
    if (cpu_opens_apart)
        apart_device_make(d);
    return OK;
}
