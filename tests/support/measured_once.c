/* How fast the CPU is, is found out at every opening; test programs open it hundreds of times, and
 * would spend half their time on that. The linker puts this in the place of cpu_measure (--wrap):
 * each number of threads is measured once per program. */
#include "device/cpu/runtime/rates.h"

enum { MOST_THREADS = 64 };

enum status __real_cpu_measure(struct device *d, bool *undisturbed);
enum status __wrap_cpu_measure(struct device *d, bool *undisturbed);

enum status __wrap_cpu_measure(struct device *d, bool *undisturbed)
{
    static struct {
        struct device_rates rates;
        bool known, undisturbed;
    } measured[MOST_THREADS];
    int n = d->env.n_threads;
    if (n >= MOST_THREADS)
        return __real_cpu_measure(d, undisturbed);
    if (!measured[n].known) {
        TRY(__real_cpu_measure(d, &measured[n].undisturbed));
        measured[n].rates = d->rates;
        measured[n].known = true;
    }
    d->rates = measured[n].rates;
    *undisturbed = measured[n].undisturbed;
    return OK;
}
