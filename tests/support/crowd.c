#include "support/crowd.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

void crowd_start(pid_t *others, int n)
{
    for (int i = 0; i < n; i++) {
        others[i] = fork();
        assert_true(others[i] >= 0);
        if (others[i] == 0) {
            (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
            for (volatile unsigned turns = 0;; turns++)
                ;
        }
    }
}

void crowd_end(const pid_t *others, int n)
{
    for (int i = 0; i < n; i++) {
        (void)kill(others[i], SIGKILL);
        (void)waitpid(others[i], NULL, 0);
    }
}
