/* crowd.h: processes that do nothing but keep processors busy. */
#ifndef SNUG_TESTS_SUPPORT_CROWD_H
#define SNUG_TESTS_SUPPORT_CROWD_H

#include <sys/types.h>

/* They end with the test, also where it is killed. */
void crowd_start(pid_t *others, int n);
void crowd_end(const pid_t *others, int n);

#endif
