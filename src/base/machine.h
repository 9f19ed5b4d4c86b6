/* machine.h: the clock, and what processor this is. */
#ifndef SNUG_BASE_MACHINE_H
#define SNUG_BASE_MACHINE_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Seconds since some moment in the past; never goes back. */
double now_s(void);

/* As the system calls the processor; "unknown" where it does not say. */
void processor_name(char *out, size_t size);

#ifdef __cplusplus
}
#endif
#endif
