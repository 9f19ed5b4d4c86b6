/* How fast the CPU is, is found out at every opening, and what its kernels take at every plan whose
 * times are not kept or were disturbed; test programs open and plan hundreds of times, beside each
 * other, and would spend half their time on that. The linker puts these in the place of cpu_measure
 * and benchmark_call (--wrap): each number of threads and each call is measured once per program.
 */
#include "base/hash.h"
#include "device/cpu/runtime/rates.h"
#include "device/cpu/runtime/time.h"
#include "program/benchmark.h"
#include "program/kernel_times.h"

/* ---- rates ----------------------------------------------------------------------------------- */

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

/* ---- kernels --------------------------------------------------------------------------------- */

enum { MOST_CALLS = 4096 };

struct measured_call {
    uint64_t hash; /* 0: none yet */
    struct call_time time;
};

enum status __real_benchmark_call(const struct scratch *s, const struct program *p, int32_t instr,
                                  struct call_time *out);
enum status __wrap_benchmark_call(const struct scratch *s, const struct program *p, int32_t instr,
                                  struct call_time *out);

/* Where the time of this call is or goes; NULL when all places are taken. */
static struct measured_call *find_call(const struct device *d, const struct program *p,
                                       int32_t instr)
{
    static struct measured_call calls[MOST_CALLS];
    uint64_t hash = (instr_hash(p, d, instr) ^ hash_text(d->identity)) | 1;
    for (size_t i = 0; i < MOST_CALLS; i++) {
        struct measured_call *c = &calls[(hash + i) % MOST_CALLS];
        if (c->hash == 0)
            c->hash = hash;
        if (c->hash == hash)
            return c;
    }
    return NULL;
}

enum status __wrap_benchmark_call(const struct scratch *s, const struct program *p, int32_t instr,
                                  struct call_time *out)
{
    /* A device of the test's own has times of its own. */
    struct measured_call *c =
        s->device->ops->time_calls == cpu_time_calls ? find_call(s->device, p, instr) : NULL;
    if (!c)
        return __real_benchmark_call(s, p, instr, out);
    if (!(c->time.seconds > 0))
        TRY(__real_benchmark_call(s, p, instr, &c->time));
    *out = c->time;
    return OK;
}
