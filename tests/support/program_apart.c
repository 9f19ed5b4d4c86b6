/* program_apart.c: the program as it is, on a CPU whose memory is apart (build/snug-apart): what
 * the command line does to a device that the host cannot address, without a GPU. Linked only there.
 */
#include "base/status.h"
#include "support/apart_device.h"

enum status __real_device_open_cpu_cached(struct device *d, int n_threads,
                                          const char *cache_folder);
enum status __wrap_device_open_cpu_cached(struct device *d, int n_threads,
                                          const char *cache_folder);

/* The linker puts it in the place of device_open_cpu_cached (--wrap). */
enum status __wrap_device_open_cpu_cached(struct device *d, int n_threads, const char *cache_folder)
{
    TRY(__real_device_open_cpu_cached(d, n_threads, cache_folder));
    apart_device_make(d);
    return OK;
}
