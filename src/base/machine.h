/* machine.h: the clock, and what processors there are. */
#ifndef SNUG_BASE_MACHINE_H
#define SNUG_BASE_MACHINE_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Seconds since some moment in the past; never goes back. */
double now_s(void);
/* Seconds that this thread has computed: the same work takes the same of them on a busy machine. */
double thread_s(void);

/* The system's number of the calling thread. */
int thread_number(void);
/* Seconds that a thread of this process has spent ready to run while others had the processors; 0
 * where the system does not say. */
double run_delay_s(int thread);

/* Processors this process may run on. */
int usable_processors(void);

/* As the system calls the processor; "unknown" where it does not say. */
void processor_name(char *out, size_t size);

#ifdef __cplusplus
}
#endif
#endif
